"""A request gets the same bits alone, first, last and in the middle of any batch, whatever room.

Compared are tokens, logits of every drawn row, and all rows that its sequence left in the caches.
"""

import random
from collections.abc import Callable

import pytest
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.testing.beginnings import words
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.seeds import seed_of
from deepinfer_core.testing.small_engines import (
    Answer,
    Ask,
    EngineShape,
    SmallEngine,
    slim_config,
    small_engine,
)
from deepinfer_core.testing.tiny_model import tiny_model

SEMANTIC = Numerics(compute="float32", activation_quantisation=False, cache_quantisation=False)
MINE = words("mine", 43)
GREEDY = SamplingParams(temperature=0, max_tokens=9)
DRAWN = SamplingParams(temperature=1, seed=5, max_tokens=9)
SAMPLES = SamplingParams(temperature=1, seed=5, max_tokens=9, n=3)

# One request has up to 97 tokens, so seven blocks: all at once would need four times as many.
ROOMS = {"roomy": {"blocks": 200}, "short": {"blocks": 9, "longest": 128, "snapshots": 3}}


@pytest.fixture(scope="module", params=[Numerics(), SEMANTIC], ids=["production", "semantic"])
def model(request: pytest.FixtureRequest) -> TextModel:
    return tiny_model(request.param, config=slim_config(16))


def engine_of(model: TextModel, **sizes: int) -> SmallEngine:
    shape = EngineShape(**{"max_rows": 50, "max_sequences": 7, "snapshots": 8} | sizes)
    return small_engine(model, shape)


def company(seed: int) -> list[Ask]:
    """Others, of which one begins alike."""
    draw = random.Random(seed)
    prompts = [words(f"{seed} {number}", draw.randint(1, 80)) for number in range(3)]
    prompts.append([*MINE[: draw.randint(1, 43)], *words(f"{seed}", draw.randint(1, 40))])
    return [
        Ask(prompt=prompt, params=SamplingParams(seed=7, max_tokens=draw.randint(1, 16)))
        for prompt in prompts
    ]


@pytest.fixture(scope="module")
def alone(model: TextModel) -> Callable[[SamplingParams], list[Answer]]:
    """The answers to the prompt in an engine that does nothing else."""
    made: dict[int, list[Answer]] = {}

    def answers(params: SamplingParams) -> list[Answer]:
        if id(params) not in made:
            made[id(params)] = engine_of(model).answer([Ask(prompt=MINE, params=params)])
        return made[id(params)]

    return answers


def assert_same(found: list[Answer], wanted: list[Answer]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.done.token_ids == other.done.token_ids
        assert_same_bits(one.logits_RV, other.logits_RV)
        assert one.kept.keys() == other.kept.keys()
        for name, kept in one.kept.items():
            assert_same_bits(kept.rows_RD, other.kept[name].rows_RD)


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("place", [0, 2, 4], ids=["first", "middle", "last"])
@pytest.mark.parametrize("params", [GREEDY, DRAWN, SAMPLES], ids=["greedy", "drawn", "samples"])
def test_a_request_does_not_notice_who_else_is_there(
    model: TextModel,
    alone: Callable[[SamplingParams], list[Answer]],
    params: SamplingParams,
    place: int,
    room: str,
    request: pytest.FixtureRequest,
) -> None:
    asks = company(seed_of(request))
    asks.insert(place, Ask(prompt=MINE, params=params))
    answers = engine_of(model, **ROOMS[room]).answer(asks)
    assert_same(answers[place : place + params.n], alone(params))


def test_a_request_that_loses_its_blocks_gets_the_same_bits(
    model: TextModel, alone: Callable[[SamplingParams], list[Answer]]
) -> None:
    engine = engine_of(model, **ROOMS["short"])
    # Each of the others starts in one block and soon needs a second; the last in rank loses its.
    long = SamplingParams(temperature=0, max_tokens=30)
    asks = [Ask(prompt=words(str(number), 13), params=long) for number in range(3)]
    [*_, mine] = engine.answer([*asks, Ask(prompt=MINE, params=DRAWN)])
    assert engine.batch.preemptions > 0
    assert len({step.start for step in mine.steps}) < len(mine.steps)
    assert_same([mine], alone(DRAWN))


def test_every_request_of_a_crowd_gets_what_it_gets_alone(
    model: TextModel, request: pytest.FixtureRequest
) -> None:
    asks = [ask for number in range(2) for ask in company(seed_of(request) + number)]
    answers = engine_of(model, **ROOMS["short"]).answer(asks)
    for ask, answer in zip(asks, answers, strict=True):
        assert_same([answer], engine_of(model, shares=False).answer([ask]))
