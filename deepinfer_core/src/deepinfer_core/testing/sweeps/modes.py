"""Do asynchronous and mixed steps and shared prefixes give the bits of the plainest engine?

By bits, with room for all requests and with too few blocks, so that some are preempted.
"""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest

from deepinfer_core.engine.request_options import RequestOptions
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.cold_text import ColdText
from deepinfer_core.testing.small_engines import Answer, Ask, EngineShape
from deepinfer_core.testing.sweeps.fixtures import ColdTexts, MakeEngine
from deepinfer_core.testing.sweeps.sweep import Sweep

__all__ = ["ModesSweep"]

_Mode = tuple[bool, bool, bool]

_MODES: list[_Mode] = [(a, b, c) for a, b, c in product([False, True], repeat=3)]
"""Asynchronous, mixes, shares."""


class ModesSweep(Sweep):
    """Every combination of modes against the plainest."""

    @pytest.fixture
    def cold(self, cold_texts: ColdTexts) -> ColdText:
        """The text in windows of 16."""
        return cold_texts(16)

    @pytest.fixture
    def asks(self, cold: ColdText) -> list[Ask]:
        """Requests that share beginnings."""
        return _workload(cold)

    @pytest.fixture
    def plain(self, cold: ColdText, make_engine: MakeEngine, asks: list[Ask]) -> list[Answer]:
        """The answers of a synchronous engine that mixes and shares nothing."""
        return self.once("plain", lambda: _run(make_engine, cold, asks, _MODES[0]))

    @pytest.mark.parametrize("mode", _MODES[1:], ids=str)
    def test_modes_of_stepping_and_reuse_change_no_bit(
        self,
        cold: ColdText,
        make_engine: MakeEngine,
        asks: list[Ask],
        plain: list[Answer],
        mode: _Mode,
    ) -> None:
        """With room for all."""
        found = _run(make_engine, cold, asks, mode)
        _assert_same_answers(found, plain)
        firsts = [answer for answer in found if answer.done.sample == 0]
        assert any(answer.done.usage.cached_tokens for answer in firsts) == mode[2]

    @pytest.mark.parametrize("mode", _MODES[1:], ids=str)
    def test_modes_change_no_bit_when_blocks_are_short(
        self,
        cold: ColdText,
        make_engine: MakeEngine,
        asks: list[Ask],
        plain: list[Answer],
        mode: _Mode,
    ) -> None:
        """One request has up to 107 tokens, so seven blocks; five run at once."""
        found = _run(make_engine, cold, asks, mode, blocks=8, snapshots=2, longest=128)
        _assert_same_answers(found, plain)


def _workload(cold: ColdText) -> list[Ask]:
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


def _run(
    make_engine: MakeEngine,
    cold: ColdText,
    asks: list[Ask],
    mode: _Mode,
    **sizes: Any,
) -> list[Answer]:
    is_asynchronous, mixes, shares = mode
    usual: dict[str, Any] = {"max_rows": 40, "max_sequences": 5, "snapshots": 8, "blocks": 100}
    shape = EngineShape(
        is_asynchronous=is_asynchronous, mixes=mixes, shares=shares, **usual | sizes
    )
    engine = make_engine(cold.model, shape)
    try:
        return engine.answer(asks)
    finally:
        engine.close()


def _assert_same_answers(found: list[Answer], wanted: list[Answer]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.done.token_ids == other.done.token_ids
        assert one.done.logprobs == other.done.logprobs
        assert one.done.prompt_logprobs == other.done.prompt_logprobs
        assert_same_bits(one.logits_RV, other.logits_RV)
