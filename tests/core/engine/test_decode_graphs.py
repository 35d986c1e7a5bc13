"""Does one recording serve every decode step of its rung, with the bits of the step itself?"""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from deepinfer_core.cache.storage import Caches
from deepinfer_core.engine import rungs
from deepinfer_core.engine.decode_graphs import DecodeGraphs
from deepinfer_core.engine.packed_step import PackedStep
from deepinfer_core.engine.rungs import Rung
from deepinfer_core.engine.runner import ModelRunner
from deepinfer_core.errors import DeviceError
from deepinfer_core.interfaces.device import InlineStream
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.caches import allocate_caches
from deepinfer_core.reference.sampler import ReferenceSampler
from deepinfer_core.schedule.plan import SequenceStep, StepPlan
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.rerun_device import RerunDevice
from deepinfer_core.testing.small_engines import (
    Ask,
    EngineShape,
    SmallEngine,
    slim_config,
    small_engine,
)
from deepinfer_core.testing.tiny_model import reference_parts, tiny_model
from deepinfer_core.testing.verified_texts import Fed, VerifiedTexts

NUMERICS = Numerics()
BLOCK = 16
WINDOW = 16


@pytest.fixture
def low_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several reaches for texts of a few hundred tokens."""
    monkeypatch.setattr(rungs, "_LOWEST_REACH", 32)
    monkeypatch.setattr(rungs, "_REACH_FACTOR", 2)


@pytest.fixture(scope="module")
def device() -> RerunDevice:
    return RerunDevice()


@pytest.fixture(scope="module")
def model(device: RerunDevice) -> TextModel:
    parts = replace(reference_parts(NUMERICS), device=device)
    return tiny_model(NUMERICS, config=slim_config(WINDOW), parts=parts)


@pytest.fixture
def make_graphs(
    model: TextModel, device: RerunDevice, low_reach: None
) -> Callable[..., DecodeGraphs]:
    def make(rows: int = 4, tokens: int = 100, each: int = 1) -> DecodeGraphs:
        device.recordings.clear()
        caches = allocate_caches(
            model.config, NUMERICS, model.parts.codec, device,
            num_blocks=64, num_slots=8, max_backtracking=6, block_tokens=BLOCK,
        )  # fmt: skip
        return DecodeGraphs(
            model, caches,
            max_sequences=rows, max_tokens=tokens, block_tokens=BLOCK, rows_each=each,
        )  # fmt: skip

    return make


FIRST = SequenceStep(
    sequence_id=1,
    start=3,
    token_ids=(5,),
    history=(1, 2, 3),
    block_ids=(0,),
    state_slot=0,
    wants_token=True,
)
"""Over the dummy pages."""


def test_every_rung_is_recorded_the_largest_first(
    make_graphs: Callable[..., DecodeGraphs], device: RerunDevice
) -> None:
    graphs, told = make_graphs(), list[Rung]()
    graphs.record(told.append)
    assert told == [Rung(rows, reach) for rows in (4, 3, 2, 1) for reach in (112, 64, 32)]
    assert graphs.recorded == len(device.recordings) == 12


def test_a_device_without_a_recorder_records_nothing(
    make_graphs: Callable[..., DecodeGraphs], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RerunDevice, "recorder", None)
    graphs = make_graphs()
    graphs.record()
    assert graphs.recorded == 0
    assert graphs.rung_of(StepPlan((FIRST,))) is None


def test_a_step_beyond_the_largest_rung_is_launched_call_by_call(
    make_graphs: Callable[..., DecodeGraphs],
) -> None:
    graphs = make_graphs(rows=2)
    graphs.record()
    assert graphs.rung_of(StepPlan((FIRST,) * 2)) == Rung(2, 32)
    assert graphs.rung_of(StepPlan((FIRST,) * 3)) is None


def test_a_step_that_cannot_be_repeated_is_an_error(
    make_graphs: Callable[..., DecodeGraphs], device: RerunDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device.recorder, "record", lambda work: None)
    with pytest.raises(DeviceError, match="a step of 4 rows, found that it cannot be repeated"):
        make_graphs().record()


@pytest.mark.parametrize("each", [1, 2, 5, 6])
def test_steps_of_several_rows_have_the_bits_of_steps_that_are_launched_piece_by_piece(
    make_graphs: Callable[..., DecodeGraphs],
    model: TextModel,
    device: RerunDevice,
    each: int,
    request: pytest.FixtureRequest,
) -> None:
    chance = random.Random(request.node.name)
    texts = [tuple(chance.choices(range(200), k=100)) for _ in range(3)]

    def decoding(graphs: DecodeGraphs | None) -> tuple[VerifiedTexts, Caches]:
        caches = make_graphs().caches if graphs is None else graphs.caches
        runner = ModelRunner(
            model, caches, ReferenceSampler(), InlineStream(),
            vocabulary=model.config.text_config.vocab_size, graphs=graphs,
        )  # fmt: skip
        return VerifiedTexts(runner, texts, block_tokens=BLOCK, text_blocks=7), caches

    want, want_caches = decoding(None)
    graphs = make_graphs(rows=3, each=each)
    graphs.record()
    got, got_caches = decoding(graphs)
    for _ in range(15):
        some = chance.sample(range(3), chance.randint(1, 3))
        counts = [chance.randint(1, each) for _ in some]
        fed = [Fed(text, n, chance.randint(1, n)) for text, n in zip(some, counts, strict=True)]
        assert_same_bits(got.feed(*fed), want.feed(*fed))
    assert_same_bits(got_caches.blocks_PB[1:], want_caches.blocks_PB[1:])
    assert_same_bits(got_caches.states_PB[1:], want_caches.states_PB[1:])
    assert sum(one.repeats for one in device.recordings) == 15


def engine_of(model: TextModel, *, is_recorded: bool, is_asynchronous: bool) -> SmallEngine:
    shape = EngineShape(
        block_tokens=BLOCK,
        blocks=128,
        max_rows=64,
        max_sequences=6,
        longest=200,
        snapshots=8,
        is_asynchronous=is_asynchronous,
        mixes=False,
    )
    engine = small_engine(model, shape)
    if is_recorded:
        runner = engine.runner
        runner.graphs = DecodeGraphs(
            model, runner.caches, max_sequences=6, max_tokens=200, block_tokens=BLOCK
        )
        runner.graphs.record()
    return engine


@pytest.mark.usefixtures("low_reach")
@pytest.mark.parametrize("is_asynchronous", [False, True])
def test_answers_have_the_bits_of_steps_that_are_launched_piece_by_piece(
    model: TextModel, device: RerunDevice, asks: list[Ask], is_asynchronous: bool
) -> None:
    wanted = engine_of(model, is_recorded=False, is_asynchronous=is_asynchronous).answer(asks)
    device.recordings.clear()
    engine = engine_of(model, is_recorded=True, is_asynchronous=is_asynchronous)
    for _ in range(2):  # the second time a part of each prompt is cached
        for got, want in zip(engine.answer(asks), wanted, strict=True):
            assert got.done.token_ids == want.done.token_ids
            assert_same_bits(got.logits_RV, want.logits_RV)
            assert got.kept.keys() == want.kept.keys()
            for name, kept in want.kept.items():
                assert_same_bits(got.kept[name].rows_RD, kept.rows_RD)
    assert sum(bool(one.repeats) for one in device.recordings) >= 4
    engine.close()


def test_padding_leaves_the_pages_of_sequences_alone(
    make_graphs: Callable[..., DecodeGraphs], model: TextModel
) -> None:
    graphs = make_graphs()
    graphs.record()
    caches = graphs.caches
    with torch.inference_mode():
        caches.blocks_PB[1:] = 7
        caches.states_PB[1:] = 7
        packed = PackedStep(
            StepPlan((FIRST,)),
            model.parts.device,
            shape=graphs.shape_of(Rung(4, 32)),
        )
        graphs.run(Rung(4, 32), packed.bring(None))
    assert bool((caches.blocks_PB[1:] == 7).all())
    assert bool((caches.states_PB[1:] == 7).all())
