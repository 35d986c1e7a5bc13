"""Does a request get the same bits alone, first, last and in the middle of any batch?

Whatever room there is. Compared are tokens, logits of every drawn row, and all rows that its
sequence left in the caches.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.testing.beginnings import words
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.seeds import seed_of
from deepinfer_core.testing.small_engines import Answer, Ask, EngineShape, SmallEngine
from deepinfer_core.testing.sweeps.fixtures import MakeEngine
from deepinfer_core.testing.sweeps.sweep import Sweep

__all__ = ["CompanySweep"]

_MINE = words("mine", 43)
_GREEDY = SamplingParams(temperature=0, max_tokens=9)
_DRAWN = SamplingParams(temperature=1, seed=5, max_tokens=9)
_SAMPLES = SamplingParams(temperature=1, seed=5, max_tokens=9, n=3)

_ROOMS = {"roomy": {"blocks": 200}, "short": {"blocks": 9, "longest": 128, "snapshots": 3}}
"""One request has up to 97 tokens, so seven blocks: all at once would need four times as many."""

_Alone = Callable[[SamplingParams], list[Answer]]


class CompanySweep(Sweep):
    """One prompt beside others, with room for all and with too little."""

    @pytest.fixture
    def alone(self, model: TextModel, make_engine: MakeEngine) -> _Alone:
        """The answers to the prompt in an engine that does nothing else."""

        def answers(params: SamplingParams) -> list[Answer]:
            asks = [Ask(prompt=_MINE, params=params)]
            return self.once(
                (id(model), id(params)), lambda: _engine_of(make_engine, model).answer(asks)
            )

        return answers

    @pytest.mark.parametrize("room", _ROOMS)
    @pytest.mark.parametrize("place", [0, 2, 4], ids=["first", "middle", "last"])
    @pytest.mark.parametrize(
        "params", [_GREEDY, _DRAWN, _SAMPLES], ids=["greedy", "drawn", "samples"]
    )
    def test_a_request_does_not_notice_who_else_is_there(
        self,
        model: TextModel,
        make_engine: MakeEngine,
        alone: _Alone,
        params: SamplingParams,
        place: int,
        room: str,
        request: pytest.FixtureRequest,
    ) -> None:
        """Four others, of which one begins alike."""
        asks = _company(seed_of(request))
        asks.insert(place, Ask(prompt=_MINE, params=params))
        answers = _engine_of(make_engine, model, **_ROOMS[room]).answer(asks)
        _assert_same(answers[place : place + params.n], alone(params))

    def test_a_request_that_loses_its_blocks_gets_the_same_bits(
        self, model: TextModel, make_engine: MakeEngine, alone: _Alone
    ) -> None:
        """Each of the others starts in one block and soon needs a second; the last loses its."""
        engine = _engine_of(make_engine, model, **_ROOMS["short"])
        long = SamplingParams(temperature=0, max_tokens=30)
        asks = [Ask(prompt=words(str(number), 13), params=long) for number in range(3)]
        [*_, mine] = engine.answer([*asks, Ask(prompt=_MINE, params=_DRAWN)])
        assert engine.batch.preemptions > 0
        assert len({step.start for step in mine.steps}) < len(mine.steps)
        _assert_same([mine], alone(_DRAWN))

    def test_every_request_of_a_crowd_gets_what_it_gets_alone(
        self, model: TextModel, make_engine: MakeEngine, request: pytest.FixtureRequest
    ) -> None:
        """Eight requests in too few blocks."""
        asks = [ask for number in range(2) for ask in _company(seed_of(request) + number)]
        answers = _engine_of(make_engine, model, **_ROOMS["short"]).answer(asks)
        for ask, answer in zip(asks, answers, strict=True):
            _assert_same([answer], _engine_of(make_engine, model, shares=False).answer([ask]))


def _engine_of(make_engine: MakeEngine, model: TextModel, **sizes: Any) -> SmallEngine:
    usual: dict[str, Any] = {"max_rows": 50, "max_sequences": 7, "snapshots": 8}
    return make_engine(model, EngineShape(**usual | sizes))


def _company(seed: int) -> list[Ask]:
    draw = random.Random(seed)
    prompts = [words(f"{seed} {number}", draw.randint(1, 80)) for number in range(3)]
    prompts.append([*_MINE[: draw.randint(1, 43)], *words(f"{seed}", draw.randint(1, 40))])
    return [
        Ask(prompt=prompt, params=SamplingParams(seed=7, max_tokens=draw.randint(1, 16)))
        for prompt in prompts
    ]


def _assert_same(found: list[Answer], wanted: list[Answer]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.done.token_ids == other.done.token_ids
        assert_same_bits(one.logits_RV, other.logits_RV)
        assert one.kept.keys() == other.kept.keys()
        for name, kept in one.kept.items():
            assert_same_bits(kept.rows_RD, other.kept[name].rows_RD)
