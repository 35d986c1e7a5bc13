"""Asynchronous equals synchronous, mixed steps equal turns, shared prefixes equal none, by bits."""

import random
from collections.abc import Callable
from itertools import product

import pytest
from deepinfer_core.engine.request_options import RequestOptions
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.cold_text import ColdText
from deepinfer_core.testing.small_engines import Answer, Ask, EngineShape, small_engine

ColdTexts = Callable[..., ColdText]

MODES = [*product([False, True], repeat=3)]


@pytest.fixture(scope="module")
def cold(cold_texts: ColdTexts) -> ColdText:
    return cold_texts(16)


def workload(cold: ColdText) -> list[Ask]:
    """Requests that share beginnings, some with samples, penalties or scores of their prompt."""
    draw = random.Random("workload")
    asks = []
    for number in range(9):
        shared = draw.randint(0, 70)
        own = [9 + draw.randrange(256) for _ in range(draw.randint(1, 25))]
        params = SamplingParams(
            temperature=draw.choice([0, 1]),
            seed=number,
            max_tokens=draw.randint(1, 12),
            n=draw.choice([1, 1, 3]),
            presence_penalty=draw.choice([0, 1.5]),
            logprobs=2,
            prompt_logprobs=draw.choice([None, None, 1]),
        )
        options = RequestOptions(priority=draw.randint(-1, 1))
        asks.append(Ask(prompt=[*cold.tokens[:shared], *own], params=params, options=options))
    return asks


def run(
    cold: ColdText, asks: list[Ask], mode: tuple[bool, bool, bool], **sizes: int
) -> list[Answer]:
    is_asynchronous, mixes, shares = mode
    shape = EngineShape(
        is_asynchronous=is_asynchronous,
        mixes=mixes,
        shares=shares,
        **{"max_rows": 40, "max_sequences": 5, "snapshots": 8, "blocks": 100} | sizes,
    )
    engine = small_engine(cold.model, shape)
    try:
        return engine.answer(asks)
    finally:
        engine.close()


def assert_same_answers(found: list[Answer], wanted: list[Answer]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.done.token_ids == other.done.token_ids
        assert one.done.logprobs == other.done.logprobs
        assert one.done.prompt_logprobs == other.done.prompt_logprobs
        assert_same_bits(one.logits_RV, other.logits_RV)


@pytest.fixture(scope="module")
def asks(cold: ColdText) -> list[Ask]:
    return workload(cold)


@pytest.fixture(scope="module")
def plain(cold: ColdText, asks: list[Ask]) -> list[Answer]:
    """The answers of a synchronous engine that mixes and shares nothing."""
    return run(cold, asks, MODES[0])


@pytest.mark.parametrize("mode", MODES[1:], ids=str)
def test_modes_of_stepping_and_reuse_change_no_bit(
    cold: ColdText, asks: list[Ask], plain: list[Answer], mode: tuple[bool, bool, bool]
) -> None:
    found = run(cold, asks, mode)
    assert_same_answers(found, plain)
    firsts = [answer for answer in found if answer.done.sample == 0]
    assert any(answer.done.usage.cached_tokens for answer in firsts) == mode[2]


@pytest.mark.parametrize("mode", MODES[1:], ids=str)
def test_modes_change_no_bit_when_blocks_are_short(
    cold: ColdText, asks: list[Ask], plain: list[Answer], mode: tuple[bool, bool, bool]
) -> None:
    # One request has up to 107 tokens, so seven blocks; five run at once.
    assert_same_answers(run(cold, asks, mode, blocks=8, snapshots=2, longest=128), plain)
