"""A request's tokens and log-probabilities: the same bits in any company and any chunking."""

import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.outputs import Completion
from deepinfer_core.engine.sampling_params import SamplingParams

MakeLLM = Callable[..., LLM]
SAMPLED = SamplingParams(
    temperature=0.8, top_p=0.95, seed=11, max_tokens=6, logprobs=3, prompt_logprobs=1
)
GREEDY = SamplingParams(temperature=0, max_tokens=6, logprobs=3)


def prompt(length: int, name: str = "") -> list[int]:
    """Ordinary tokens behind the beginning-of-sequence token."""
    ids = [9 + zlib.crc32(f"{name} {place}".encode()) % 256 for place in range(length - 1)]
    return [0, *ids]


def bits(done: Completion) -> tuple[object, ...]:
    assert done.error is None
    return done.text, done.token_ids, done.finish_reason, done.logprobs, done.prompt_logprobs


@pytest.mark.parametrize("params", [SAMPLED, GREEDY], ids=["sampled", "greedy"])
@pytest.mark.parametrize("place", [0, 1, 2], ids=["first", "middle", "last"])
def test_a_request_gets_the_same_bits_alone_and_anywhere_in_a_batch(
    llm: LLM, params: SamplingParams, place: int
) -> None:
    mine = prompt(40, "mine")
    [alone] = llm.generate([mine], params)
    prompts = [prompt(5, "a"), prompt(150, "b")]
    company = [replace(params, seed=number, max_tokens=4 + number) for number in range(2)]
    prompts.insert(place, mine)
    company.insert(place, params)
    together = llm.generate(prompts, company)
    assert bits(together[place]) == bits(alone)


@pytest.fixture(scope="module")
def chunkers(byte_checkpoint: Path) -> Iterator[list[LLM]]:
    """Engines whose steps hold 7, 128 and 512 rows."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                LLM(byte_checkpoint, max_num_seqs=4, max_model_len=512, max_num_batched_tokens=rows)
            )
            for rows in (7, 128, 512)
        ]


# The window has 16 tokens, a ring 22, a block 128; groups are pairs.
@pytest.mark.parametrize("length", [1, 2, 6, 7, 15, 16, 17, 22, 23, 127, 128, 129])
def test_chunks_change_no_bit(chunkers: list[LLM], length: int) -> None:
    params = replace(SAMPLED, max_tokens=3)
    first, *others = [bits(llm.generate([prompt(length)], params)[0]) for llm in chunkers]
    assert others == [first, first]


def test_preemption_changes_no_bit(make_llm: MakeLLM) -> None:
    prompts = [prompt(120 + number, str(number)) for number in range(3)]
    params = replace(SAMPLED, max_tokens=14)
    roomy = make_llm(max_model_len=256)
    # Four usable blocks: three requests start with one each, but all three need a second.
    tight = make_llm(max_model_len=256, num_blocks=5)
    wanted = [bits(done) for done in roomy.generate(prompts, params)]
    found = [bits(done) for done in tight.generate(prompts, params)]
    assert tight.engine.batch.preemptions > 0
    assert roomy.engine.batch.preemptions == 0
    assert found == wanted


def test_a_forced_text_is_scored_the_same_as_a_prompt(llm: LLM) -> None:
    """Decoding token by token and feeding a whole prompt agree in every bit."""
    whole = prompt(60)
    [fed] = llm.generate([whole], SamplingParams(max_tokens=1, prompt_logprobs=2))
    golden = SamplingParams(
        temperature=0, max_tokens=40, golden_token_ids=whole[20:], logprobs=2, ignore_eos=True
    )
    [decoded] = llm.generate([whole[:20]], golden)
    assert fed.prompt_logprobs is not None
    assert decoded.logprobs is not None
    assert [(x.token_id, x.logprob, x.top) for x in decoded.logprobs] == [
        (x.token_id, x.logprob, x.top) for x in fed.prompt_logprobs[20:] if x is not None
    ]


def test_equal_seeds_give_equal_tokens_and_others_others(llm: LLM) -> None:
    params = [SamplingParams(seed=seed, max_tokens=8) for seed in (1, 1, 2, (1 << 64) - 1)]
    first, same, other, largest = llm.generate([prompt(9)] * 4, params)
    assert first.token_ids == same.token_ids
    assert len({first.token_ids, other.token_ids, largest.token_ids}) == 3


def test_two_engines_in_one_process_do_not_disturb_each_other(make_llm: MakeLLM) -> None:
    one, two = make_llm(), make_llm(max_num_batched_tokens=7)
    [wanted] = one.generate([prompt(30)], SAMPLED)
    streams = [engine.stream([prompt(30)], SAMPLED) for engine in (one, two)]
    found = []
    for deltas in zip(*streams, strict=True):
        found += [delta.completion for delta in deltas if delta.completion is not None]
    assert [bits(done) for done in found] == [bits(wanted)] * 2
    one.close()
    assert bits(two.generate([prompt(30)], SAMPLED)[0]) == bits(wanted)
