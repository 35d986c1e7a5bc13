"""Penalties, bias, bans and several samples through the whole engine."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.outputs import Completion
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import RequestError

MakeLLM = Callable[..., LLM]
PROMPT = [0, 20, 21, 20, 30]
RULED = SamplingParams(
    temperature=0.9,
    seed=5,
    max_tokens=6,
    ignore_eos=True,
    logprobs=2,
    prompt_logprobs=1,
    repetition_penalty=1.3,
    frequency_penalty=0.4,
    presence_penalty=0.2,
    logit_bias={40: 2, 41: -3},
    bad_words="a",
)


def one(llm: LLM, **fields: Any) -> Completion:
    [done] = llm.generate([PROMPT], SamplingParams(**{"temperature": 0, "max_tokens": 8, **fields}))
    assert done.error is None
    return done


def bits(done: Completion) -> tuple[object, ...]:
    assert done.error is None
    return done.text, done.token_ids, done.finish_reason, done.logprobs, done.prompt_logprobs


def test_log_probabilities_show_the_model_before_the_rules_and_the_law_behind_them(
    llm: LLM,
) -> None:
    # The first row, by hand, from the model's own alternatives.
    plain = one(llm, max_tokens=1, logprobs=20).logprobs
    assert plain is not None
    top = dict(plain[0].top)
    best, second = list(top)[:2]
    gap = top[best] - top[second]
    ruled = one(llm, max_tokens=1, logprobs=20, logit_bias={second: gap + 1}).logprobs
    assert ruled is not None
    assert ruled[0].token_id == second
    assert ruled[0].top == plain[0].top
    assert ruled[0].logprob == top[second]


@pytest.mark.parametrize(
    ("fields", "loss"),
    [
        ({"frequency_penalty": 0.75}, 2 * 0.75),
        ({"presence_penalty": 0.75}, 0.75),
        ({"frequency_penalty": 0.5, "presence_penalty": -1.5}, 2 * 0.5 - 1.5),
        ({"logit_bias": {50: -0.5}}, 0.5),
        ({}, 0),
    ],
)
def test_the_law_behind_penalties_is_the_one_computed_by_hand(
    llm: LLM, fields: dict[str, Any], loss: float
) -> None:
    # Only 50 and 51 may follow 50 50, so what the logits have in common cancels.
    golden = {"temperature": 1, "logprobs": True, "max_tokens": 3, "allowed_token_ids": [50, 51]}
    first = one(llm, golden_token_ids=[50, 50, 50], **golden, **fields).logprobs
    second = one(llm, golden_token_ids=[50, 50, 51], **golden).logprobs
    assert first is not None
    assert second is not None
    gap = first[2].logprob - loss - second[2].logprob
    # Three numbers below 16 rounded to fp32, each by at most 16 * 2^-25.
    assert first[2].processed_logprob == pytest.approx(-math.log1p(math.exp(-gap)), abs=3 * 2**-21)


def test_repetition_counts_the_prompt(llm: LLM) -> None:
    # Tokens 20 and 60 at about 90 and 80; the one of the prompt falls to about 45.
    fields = {"logit_bias": {20: 90, 60: 80}, "ignore_eos": True, "max_tokens": 1}
    assert one(llm, **fields).token_ids == (20,)
    assert one(llm, **fields, repetition_penalty=2).token_ids == (60,)


@pytest.mark.parametrize("temperature", [0, 5])
def test_tokens_that_may_not_be_drawn_are_not(llm: LLM, temperature: float) -> None:
    fields = {"temperature": temperature, "seed": 3, "max_tokens": 60, "ignore_eos": True}
    fields |= {"allowed_token_ids": [50, 51, 52], "logit_bias": {99: 100}}
    done = one(llm, **fields, bad_words_ids=[[50, 51], [51, 51], [52, 52], [52, 51, 50]])
    pairs = set(pairwise(done.token_ids))
    assert set(done.token_ids) <= {50, 51, 52}
    assert not pairs & {(50, 51), (51, 51), (52, 52)}


@pytest.mark.parametrize("place", [0, 1, 2], ids=["first", "middle", "last"])
def test_rules_of_other_requests_change_no_bit(llm: LLM, place: int) -> None:
    plain = SamplingParams(temperature=0.9, seed=2, max_tokens=4, logprobs=2)
    for mine in (RULED, plain):
        [alone] = llm.generate([PROMPT], mine)
        others = [plain, replace(RULED, seed=9, logit_bias=dict.fromkeys(range(30), 1))]
        params = [*others[:place], mine, *others[place:]]
        prompts: list[list[int]] = [[0, 40 + number] * 9 for number in range(2)]
        prompts.insert(place, PROMPT)
        assert bits(llm.generate(prompts, params)[place]) == bits(alone)


def test_preemption_changes_no_bit_under_rules(make_llm: MakeLLM) -> None:
    prompts = [[0, *range(20, 139 + number)] for number in range(3)]
    params = replace(RULED, max_tokens=14)
    roomy = make_llm(max_model_len=256)
    tight = make_llm(max_model_len=256, num_blocks=5)
    wanted = [bits(done) for done in roomy.generate(prompts, params)]
    assert [bits(done) for done in tight.generate(prompts, params)] == wanted
    assert tight.engine.batch.preemptions > 0


def test_samples_come_in_order_and_the_first_is_the_one_without_the_others(llm: LLM) -> None:
    params = SamplingParams(temperature=1, seed=4, max_tokens=6, n=3)
    done = llm.generate([PROMPT, [0, 70]], params)
    assert [(one.index, one.sample) for one in done] == [(i, s) for i in (0, 1) for s in range(3)]
    [alone] = llm.generate([PROMPT], replace(params, n=1))
    assert bits(alone) == bits(done[0])
    assert len({one.token_ids for one in done[:3]}) == 3
    [again] = llm.generate([PROMPT], replace(params, n=1, seed=done[2].seed))
    assert bits(again) == bits(done[2])


def test_samples_without_a_seed_draw_one_each(llm: LLM) -> None:
    done = llm.generate([PROMPT], SamplingParams(n=3, max_tokens=2))
    assert len({one.seed for one in done}) == 3


def test_a_refused_prompt_gives_as_many_errors_as_samples(llm: LLM) -> None:
    done = llm.generate([[], PROMPT], SamplingParams(n=2, max_tokens=1))
    assert [(one.index, one.sample, one.error is None) for one in done] == [
        (0, 0, False),
        (0, 1, False),
        (1, 0, True),
        (1, 1, True),
    ]


def test_one_sample_or_all_of_a_request_can_be_aborted(llm: LLM) -> None:
    params = SamplingParams(n=3, seed=1, max_tokens=5, ignore_eos=True)
    with llm.stream([PROMPT, [0, 70]], params) as stream:
        next(stream)
        stream.abort(0, sample=1)
        stream.abort(1)
        ended = {
            (delta.index, delta.sample): delta.completion.finish_reason
            for delta in stream
            if delta.completion is not None
        }
    aborted = {place for place, reason in ended.items() if reason == "abort"}
    assert aborted == {(0, 1), (1, 0), (1, 1), (1, 2)}
    assert len(ended) == 6


def test_a_chat_gives_one_answer(llm: LLM) -> None:
    with pytest.raises(RequestError, match="n is 2, and chat gives one answer"):
        llm.chat([{"role": "user", "content": "Hi"}], SamplingParams(n=2))
