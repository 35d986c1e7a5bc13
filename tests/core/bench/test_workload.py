"""Are the loads of a benchmark those that were asked for?"""

from typing import Any

import pytest
from deepinfer_core.bench.lengths import parse_lengths
from deepinfer_core.bench.workload import GivenPrompts, Load, RandomPrompts, check_fits
from deepinfer_core.errors import RequestError


def random_prompts(**changes: Any) -> RandomPrompts:
    usual: dict[str, Any] = {
        "count": 20,
        "inputs": parse_lengths("5..9", "x"),
        "outputs": parse_lengths("2..4", "x"),
        "vocabulary": 50,
        "bos_id": 77,
        "seed": 0,
    }
    return RandomPrompts(**usual | changes)


def sizes(load: Load) -> list[tuple[int, int]]:
    return [(len(p), n) for p, n in zip(load.prompts, load.output_tokens, strict=True)]


def test_prompts_have_the_asked_lengths_and_begin_with_the_first_token() -> None:
    load = random_prompts().load(0)
    assert len(load.prompts) == len(load.output_tokens) == 20
    assert {len(prompt) for prompt in load.prompts} <= set(range(5, 10))
    assert set(load.output_tokens) <= {2, 3, 4}
    assert {prompt[0] for prompt in load.prompts} == {77}
    assert all(0 <= token < 50 for prompt in load.prompts for token in prompt[1:])


def test_a_prompt_of_one_token_is_the_first_token_alone() -> None:
    load = random_prompts(inputs=parse_lengths("1", "x")).load(0)
    assert set(load.prompts) == {(77,)}


def test_each_run_has_new_tokens_of_the_same_lengths() -> None:
    source = random_prompts()
    assert sizes(source.load(0)) == sizes(source.load(1))
    assert not set(source.load(0).prompts) & set(source.load(1).prompts)


def test_a_run_can_be_had_again_and_another_seed_gives_another_one() -> None:
    assert random_prompts().load(3) == random_prompts().load(3)
    assert random_prompts(seed=1).load(3) != random_prompts().load(3)


def test_given_prompts_are_the_same_in_every_run() -> None:
    outputs = parse_lengths("2..40", "x")
    source = GivenPrompts(prompts=((1, 2), (3,)), outputs=outputs, seed=0)
    assert source.load(0) == source.load(1)
    assert source.load(0).prompts == ((1, 2), (3,))


def test_a_request_may_fill_the_context_and_not_exceed_it() -> None:
    check_fits([3, 5], [4, 3], 8)
    with pytest.raises(RequestError, match="prompt 2 has 5 tokens and 4 are to follow"):
        check_fits([3, 5], [4, 4], 8)
