"""Do steps that components repeat have the bits of called ones, and do they keep to a limit?"""

import gc
import random
import weakref
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from deepinfer_core.config.kernel_cache import kernel_cache_folder
from deepinfer_core.engine import rungs
from deepinfer_core.engine.late_recordings import LateRecordings, shared_recorder
from deepinfer_core.engine.rungs import Rung
from deepinfer_core.engine.runner import ModelRunner
from deepinfer_core.interfaces.device import InlineStream
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.interfaces.recording import MOST_RECORDED_BYTES, Recorder, Recording
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.caches import allocate_caches
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.native import all_to_all, attention, gemm, transform
from deepinfer_core.native.recording import kernel_recorder
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.reference.device import build_cpu
from deepinfer_core.reference.sampler import ReferenceSampler
from deepinfer_core.reference.transform import build as build_transform
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.small_engines import Ask, EngineShape, SmallEngine, small_engine
from deepinfer_core.testing.tiny import golden_tokens
from deepinfer_core.testing.tiny_model import reference_parts, tiny_model
from deepinfer_core.testing.verified_texts import Fed, VerifiedTexts

from deepinfer_core import LLM

BLOCK = 16
SEQUENCES = 20
"""More than 16, so that some numbers of rows are padded."""


class CountingRecorder(Recorder):
    """Counts recordings and repetitions; may claim that they keep more than they do, or refuse."""

    def __init__(self, own: Recorder) -> None:
        self.own = own
        self.recorded = self.repeated = 0
        self.claimed_bytes = 0
        self.refuses = False

    def record(self, work: Callable[[], None]) -> Recording | None:
        self.recorded += 1
        found = self.own.record(work)
        return None if found is None or self.refuses else _Counting(self, found)

    @property
    def counts(self) -> tuple[int, int]:
        return self.recorded, self.repeated


class _Counting(Recording):
    def __init__(self, counts: CountingRecorder, own: Recording) -> None:
        self._counts = counts
        self._own = own

    @property
    def memory_bytes(self) -> int:
        return self._counts.claimed_bytes or self._own.memory_bytes

    def repeat(self) -> None:
        self._counts.repeated += 1
        self._own.repeat()


def cpu_parts(**others: object) -> ModelParts:
    context = BuildContext(device="cpu", needs=ModelNeeds(), cache_dir=kernel_cache_folder())
    attending, multiplying = attention.build(None, context), gemm.build(None, context)
    parts: dict[str, object] = {
        "device": build_cpu(None, context),
        "transform": transform.build(None, context),
        "all_to_all": all_to_all.build(None, context),
        "numerics": Numerics(),
        **dict.fromkeys(("prefill", "decode", "indexer", "codec"), attending),
        **dict.fromkeys(("dense", "grouped"), multiplying),
    }
    return ModelParts(**{**parts, **others})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def model() -> TextModel:
    return tiny_model(Numerics(), parts=cpu_parts())


@pytest.fixture
def recorder() -> CountingRecorder:
    return CountingRecorder(kernel_recorder(kernel_cache_folder()))


class Batch:
    """Texts that decode, recorded or not."""

    def __init__(self, model: TextModel, recorder: Recorder | None, *, rows_each: int = 1) -> None:
        caches = allocate_caches(
            model.config, Numerics(), model.parts.codec, model.parts.device,
            num_blocks=1 + 8 * SEQUENCES, num_slots=1 + SEQUENCES,
            max_backtracking=model.config.verified_rows, block_tokens=BLOCK,
        )  # fmt: skip
        self.graphs = recorder and LateRecordings(
            model, caches, recorder,
            max_sequences=SEQUENCES, max_tokens=120, block_tokens=BLOCK, rows_each=rows_each,
        )  # fmt: skip
        runner = ModelRunner(
            model, caches, ReferenceSampler(), InlineStream(),
            vocabulary=model.config.text_config.vocab_size, graphs=self.graphs,
        )  # fmt: skip
        self.caches = caches
        texts = [golden_tokens(120)[number:] for number in range(SEQUENCES)]
        self.texts = VerifiedTexts(runner, texts, block_tokens=BLOCK, text_blocks=8)

    def decode(self, *numbers: int) -> torch.Tensor:
        """One step of these texts, each of which feeds its next token."""
        return self.texts.feed(*map(Fed, numbers))


def test_repeated_steps_have_the_logits_and_caches_of_steps_that_are_called(
    model: TextModel, recorder: CountingRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # From the first entries, around rings, beyond the window, over several reaches.
    monkeypatch.setattr(rungs, "_NEAREST_REACH", 32)
    got, want = Batch(model, recorder), Batch(model, None)
    for _ in range(70):
        assert_same_bits(got.decode(0, 1, 2), want.decode(0, 1, 2))
    assert_same_bits(got.caches.blocks_PB[1:], want.caches.blocks_PB[1:])
    assert_same_bits(got.caches.states_PB[1:], want.caches.states_PB[1:])
    # Reaches of 32, 48, 64 and 80: the first step of each is called.
    assert recorder.counts == (4, 70 - 4)


def test_padding_changes_no_sequence(model: TextModel, recorder: CountingRecorder) -> None:
    got, want = Batch(model, recorder), Batch(model, None)
    for _ in range(4):
        assert_same_bits(got.decode(*range(17)), want.decode(*range(17)))  # padded to 18
    assert_same_bits(got.caches.blocks_PB[1:], want.caches.blocks_PB[1:])
    assert_same_bits(got.caches.states_PB[1:], want.caches.states_PB[1:])
    assert recorder.counts == (1, 3)


def test_repeated_steps_of_several_rows_have_the_bits_of_steps_that_are_called(
    model: TextModel, recorder: CountingRecorder, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(request.node.name)
    each = model.config.verified_rows
    got, want = Batch(model, recorder, rows_each=each), Batch(model, None)
    for _ in range(60):
        texts = chance.sample(range(SEQUENCES), 4)
        counts = [chance.randint(1, each) for _ in texts]
        fed = [Fed(text, n, chance.randint(1, n)) for text, n in zip(texts, counts, strict=True)]
        assert_same_bits(got.texts.feed(*fed), want.texts.feed(*fed))
    assert_same_bits(got.caches.blocks_PB[1:], want.caches.blocks_PB[1:])
    assert_same_bits(got.caches.states_PB[1:], want.caches.states_PB[1:])
    assert recorder.repeated > 30


def test_rejected_rows_of_repeated_steps_change_no_later_row(
    model: TextModel, recorder: CountingRecorder
) -> None:
    # Around rings: whatever is rejected, the first row of each step is as if nothing had been.
    each = model.config.verified_rows
    got, want = Batch(model, recorder, rows_each=each), Batch(model, None)
    for step in range(90):
        rows = 1 + step % each
        right = 1 + step % min(rows, 2)
        first_TV = got.texts.feed(Fed(0, rows, right))[:right]
        wanted = [want.decode(0) for _ in range(right)]
        assert_same_bits(first_TV, torch.cat(wanted))
        if got.texts.ends[0] > 100:
            break
    assert recorder.repeated > 40


def test_one_recording_serves_rows_however_they_are_spread_over_texts(
    model: TextModel, recorder: CountingRecorder
) -> None:
    got, want = Batch(model, recorder, rows_each=6), Batch(model, None)
    for counts in [(6,), (2, 1, 1, 1, 1), (2, 4), (1, 5), (3, 1, 2)]:
        fed = [Fed(text, rows) for text, rows in enumerate(counts)]
        assert_same_bits(got.texts.feed(*fed), want.texts.feed(*fed))
    assert recorder.counts == (1, 4)


def test_a_step_of_one_row_a_text_repeats_what_an_engine_without_drafts_repeats(
    model: TextModel, recorder: CountingRecorder
) -> None:
    lengths = []
    for each in (1, 6):
        batch = Batch(model, recorder, rows_each=each)
        for _ in range(2):
            batch.decode(0, 1, 2)
        assert batch.graphs is not None
        (step,) = batch.graphs._recordings.values()
        lengths.append(len(step.recording._own._steps))  # type: ignore[attr-defined]
    assert lengths[0] == lengths[1]


def test_more_texts_than_the_padding_has_sequences_are_padded(
    model: TextModel, recorder: CountingRecorder
) -> None:
    got, want = Batch(model, recorder, rows_each=6), Batch(model, None)
    fed = [Fed(text, 2 if text else 5) for text in range(SEQUENCES)]  # 43 rows, padded to 44
    for _ in range(3):
        assert_same_bits(got.texts.feed(*fed), want.texts.feed(*fed))
    assert_same_bits(got.caches.states_PB[1:], want.caches.states_PB[1:])
    assert recorder.counts == (1, 2)


def test_each_number_of_rows_is_recorded_at_its_second_step(
    model: TextModel, recorder: CountingRecorder
) -> None:
    got, want, seen = Batch(model, recorder), Batch(model, None), []
    for numbers in [(0, 1, 2), (2, 0), (0, 1, 2), (1, 2), (2,), (0, 1, 2), (0, 1), (1,), (2,)]:
        assert_same_bits(got.decode(*numbers), want.decode(*numbers))
        seen.append(recorder.counts)
    assert seen == [(0, 0), (0, 0), (1, 1), (2, 2), (2, 2), (2, 3), (2, 4), (3, 5), (3, 6)]


def test_sizes_that_cannot_be_recorded_are_not_tried_again(
    model: TextModel, recorder: CountingRecorder
) -> None:
    recorder.refuses = True
    got, want = Batch(model, recorder), Batch(model, None)
    for _ in range(5):
        assert_same_bits(got.decode(0), want.decode(0))
    assert recorder.counts == (1, 0)


def test_a_recording_that_keeps_too_much_is_given_away(
    model: TextModel, recorder: CountingRecorder
) -> None:
    recorder.claimed_bytes = MOST_RECORDED_BYTES + 1
    got, want = Batch(model, recorder), Batch(model, None)
    for _ in range(5):
        assert_same_bits(got.decode(0), want.decode(0))
    assert recorder.counts == (1, 0)


def test_recordings_of_more_rows_a_sequence_may_keep_as_much_more(
    model: TextModel, recorder: CountingRecorder
) -> None:
    recorder.claimed_bytes = 2 * MOST_RECORDED_BYTES
    batch = Batch(model, recorder, rows_each=2)
    for _ in range(3):
        batch.decode(0)
    assert recorder.counts == (1, 2)


def test_what_was_not_repeated_for_longest_makes_room(
    model: TextModel, recorder: CountingRecorder
) -> None:
    recorder.claimed_bytes = MOST_RECORDED_BYTES // 2
    batch = Batch(model, recorder)
    for numbers in ((0,), (0, 1), (0,), (0, 1)):  # two are recorded
        batch.decode(*numbers)
    batch.decode(0)
    batch.decode(0, 1, 2)
    batch.decode(0, 1, 2)  # recorded in place of two rows
    assert recorder.counts == (3, 4)
    batch.decode(0)
    assert recorder.counts == (3, 5)
    batch.decode(0, 1)
    assert recorder.counts == (4, 6)


def test_recordings_that_are_given_away_are_made_anew(
    model: TextModel, recorder: CountingRecorder
) -> None:
    batch = Batch(model, recorder)
    for _ in range(3):
        batch.decode(0)
    assert recorder.counts == (1, 2)
    assert batch.graphs is not None
    batch.graphs.clear()
    batch.decode(0)
    assert recorder.counts == (2, 3)


class Forgetful(Recorder):
    """Keeps nothing of the work, but watches what becomes of its inputs."""

    def __init__(self) -> None:
        self.inputs: list[weakref.ref[torch.Tensor]] = []

    def record(self, work: Any) -> Recording:
        work()
        values = [getattr(work.args[0], one.name) for one in fields(work.args[0])]
        self.inputs = [weakref.ref(one) for one in values if isinstance(one, torch.Tensor)]
        return _Counting(CountingRecorder(self), None)  # type: ignore[arg-type]


def test_what_a_recording_reads_outlasts_the_recording(model: TextModel) -> None:
    recorder = Forgetful()
    graphs = Batch(model, recorder).graphs
    assert graphs is not None
    words, inputs = graphs._largest(Rung(1, 112))
    step = graphs._recorded(recorder, Rung(1, 112), words, inputs)
    del words, inputs
    gc.collect()
    assert step is not None
    assert len(recorder.inputs) > 5
    assert all(one() is not None for one in recorder.inputs)


def engine_of(model: TextModel, recorder: Recorder | None, *, is_asynchronous: bool) -> SmallEngine:
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
    if recorder is not None:
        engine.runner.graphs = LateRecordings(
            model, engine.runner.caches, recorder,
            max_sequences=6, max_tokens=200, block_tokens=BLOCK,
        )  # fmt: skip
    return engine


@pytest.mark.parametrize("is_asynchronous", [False, True])
def test_answers_have_the_bits_of_steps_that_are_called(
    model: TextModel, recorder: CountingRecorder, asks: list[Ask], is_asynchronous: bool
) -> None:
    plain = engine_of(model, None, is_asynchronous=is_asynchronous)
    wanted = plain.answer(asks)
    plain.close()
    engine = engine_of(model, recorder, is_asynchronous=is_asynchronous)
    for _ in range(2):  # the second time a part of each prompt is cached
        for got, want in zip(engine.answer(asks), wanted, strict=True):
            assert got.done.token_ids == want.done.token_ids
            assert_same_bits(got.logits_RV, want.logits_RV)
    engine.close()
    assert recorder.repeated > 40


def test_components_without_a_common_recorder_are_called_each_time() -> None:
    context = BuildContext(device="cpu", needs=ModelNeeds())
    mixed = cpu_parts(transform=build_transform(None, context))
    assert shared_recorder(mixed) is None
    assert shared_recorder(reference_parts(Numerics())) is None
    assert shared_recorder(cpu_parts()) is kernel_recorder(kernel_cache_folder())


@pytest.mark.parametrize("graphs", [True, False])
def test_an_engine_on_a_cpu_records_its_steps_unless_told_otherwise(
    byte_checkpoint: Path, graphs: bool
) -> None:
    with LLM(byte_checkpoint, max_num_seqs=2, graphs=graphs) as llm:
        assert isinstance(llm.engine.runner.graphs, LateRecordings) == graphs
