"""Do repeated decode steps give the bits of steps that are computed anew?"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from deepinfer_core.cache.replay import DecoderTruncation
from deepinfer_core.cache.storage import Caches
from deepinfer_core.config.kernel_cache import kernel_cache_folder
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.interfaces.recording import Recorder, Recording
from deepinfer_core.model import repeats
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.model.caches import allocate_caches
from deepinfer_core.model.evaluate import text_step
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.model.step import StepInputs
from deepinfer_core.native import all_to_all, attention, gemm, transform
from deepinfer_core.native.recording import kernel_recorder
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.reference.device import build_cpu
from deepinfer_core.reference.transform import build as build_transform
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.steps import join_steps
from deepinfer_core.testing.tiny import golden_tokens
from deepinfer_core.testing.tiny_model import tiny_model

BLOCKS = 6
"""Of 16 tokens, for each sequence."""


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
def whole() -> TextModel:
    return tiny_model(Numerics(), parts=cpu_parts())


@pytest.fixture
def counts(whole: TextModel) -> CountingRecorder:
    """The model has no recordings yet, and counts them from now on."""
    recorder = CountingRecorder(kernel_recorder(kernel_cache_folder()))
    object.__setattr__(whole, "repeats", repeats.StepRepeats(recorder, whole._run_layers))
    return recorder


class Batch:
    """Sequences of one model and their caches."""

    def __init__(self, model: TextModel, lengths: list[int], *, is_anew: bool = False) -> None:
        self.model = model
        self.probe = (lambda name, value: None) if is_anew else None
        self.changes: dict[str, Any] = {}
        self.ends = lengths
        self.tokens = [golden_tokens(90)[number:] for number in range(len(lengths))]
        self.caches = make_caches(model, len(lengths))
        for number, length in enumerate(lengths):
            self.forward([number], [0], [length])

    def forward(self, numbers: list[int], starts: list[int], stops: list[int]) -> torch.Tensor:
        step = replace(self.step(numbers, starts, stops), **self.changes)
        return self.model.forward(step, self.caches, probe=self.probe)

    def step(self, numbers: list[int], starts: list[int], stops: list[int]) -> StepInputs:
        steps = [
            text_step(
                self.tokens[number],
                start,
                stop,
                self.caches,
                block_ids=range(1 + BLOCKS * number, 1 + BLOCKS * (number + 1)),
                state_slot=1 + number,
            )
            for number, start, stop in zip(numbers, starts, stops, strict=True)
        ]
        return join_steps(steps)

    def decode(self, *numbers: int) -> torch.Tensor:
        starts = [self.ends[number] for number in numbers]
        for number in numbers:
            self.ends[number] += 1
        return self.forward(list(numbers), starts, [start + 1 for start in starts])


def make_caches(model: TextModel, sequences: int) -> Caches:
    return allocate_caches(
        model.config,
        model.parts.numerics,
        model.parts.codec,
        model.parts.device,
        num_blocks=1 + BLOCKS * sequences,
        num_slots=1 + sequences,
        max_backtracking=model.config.verified_rows,
        block_tokens=16,
    )


def assert_same_caches(got: Caches, want: Caches) -> None:
    assert_same_bits(got.blocks_PB, want.blocks_PB)
    assert_same_bits(got.states_PB, want.states_PB)


def test_repeated_steps_have_the_logits_and_caches_of_steps_computed_anew(
    whole: TextModel, counts: CountingRecorder
) -> None:
    # From the first entries, around rings, beyond the window and the pool.
    got, want = Batch(whole, [1, 9, 40]), Batch(whole, [1, 9, 40], is_anew=True)
    for _ in range(45):
        assert_same_bits(got.decode(0, 1, 2), want.decode(0, 1, 2))
    assert_same_caches(got.caches, want.caches)
    assert counts.recorded == 1
    assert counts.repeated == 43


def test_logits_outlast_the_next_step(whole: TextModel, counts: CountingRecorder) -> None:
    batch = Batch(whole, [20, 30])
    found = [batch.decode(0, 1) for _ in range(4)]
    before = [logits_RV.clone() for logits_RV in found]
    batch.decode(0, 1)
    assert counts.repeated == 3
    for logits_RV, same_RV in zip(found, before, strict=True):
        assert_same_bits(logits_RV, same_RV)


def test_each_number_of_rows_is_recorded_at_its_second_step(
    whole: TextModel, counts: CountingRecorder
) -> None:
    got, want = Batch(whole, [20, 30, 9]), Batch(whole, [20, 30, 9], is_anew=True)
    seen = []
    for numbers in [(0, 1, 2), (2, 0), (0, 1, 2), (1, 2), (2,), (0, 1, 2), (0, 1), (1,), (2,)]:
        assert_same_bits(got.decode(*numbers), want.decode(*numbers))
        seen.append((counts.recorded, counts.repeated))
    assert seen == [(0, 0), (0, 0), (1, 0), (2, 0), (2, 0), (2, 1), (2, 2), (3, 2), (3, 3)]


def test_several_rows_of_a_sequence_are_repeated_as_well(
    whole: TextModel, counts: CountingRecorder
) -> None:
    # As for drafts that are verified, then fed again.
    got, want = Batch(whole, [20, 31]), Batch(whole, [20, 31], is_anew=True)
    for start in range(4):
        starts = [20 + start, 31 + start]
        stops = [start + 3 for start in starts]
        assert_same_bits(got.forward([0, 1], starts, stops), want.forward([0, 1], starts, stops))
    assert_same_caches(got.caches, want.caches)
    assert (counts.recorded, counts.repeated) == (1, 2)


def test_steps_that_see_more_entries_than_a_recording_has_room_for_are_recorded_anew(
    whole: TextModel, counts: CountingRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeats, "_LEAST_VISIBLE", 8)
    got, want = Batch(whole, [20]), Batch(whole, [20], is_anew=True)
    for _ in range(40):
        assert_same_bits(got.decode(0), want.decode(0))
    assert counts.recorded > 1
    assert counts.repeated > 20


def test_other_caches_are_not_taken_for_those_of_a_recording(
    whole: TextModel, counts: CountingRecorder
) -> None:
    first, second = Batch(whole, [20]), Batch(whole, [33])
    for _ in range(3):
        first.decode(0)
    want = Batch(whole, [33], is_anew=True)
    kept = first.caches.states_PB.clone()
    for _ in range(3):
        assert_same_bits(second.decode(0), want.decode(0))
    assert_same_bits(first.caches.states_PB, kept)
    assert (counts.recorded, counts.repeated) == (2, 2)


def test_a_step_that_somebody_looks_into_is_computed_anew(
    whole: TextModel, counts: CountingRecorder
) -> None:
    batch = Batch(whole, [20])
    for _ in range(3):
        batch.decode(0)
    names: list[str] = []
    batch.probe = lambda name, value: names.append(name)
    batch.decode(0)
    assert names
    assert (counts.recorded, counts.repeated) == (1, 1)


@pytest.mark.parametrize("kind", ["of images", "truncated"])
def test_a_step_that_is_more_than_tokens_is_computed_anew(
    whole: TextModel, counts: CountingRecorder, kind: str
) -> None:
    batch = Batch(whole, [20])
    if kind == "truncated":
        batch.changes = {"truncation": DecoderTruncation(mode="mask", keep_tokens=140)}
    else:
        width = whole.config.text_config.hidden_size
        batch.changes = {"embedding_TD": torch.zeros(1, width, dtype=torch.bfloat16)}
    for _ in range(3):
        batch.decode(0)
    assert (counts.recorded, counts.repeated) == (0, 0)


def test_tensors_of_the_step_that_was_recorded_are_left_alone(
    whole: TextModel, counts: CountingRecorder
) -> None:
    batch, steps = Batch(whole, [20]), []
    for start in range(20, 24):
        steps.append(batch.step([0], [start], [start + 1]))
        whole.forward(steps[-1], batch.caches)
    assert (counts.recorded, counts.repeated) == (1, 2)
    for start, step in zip(range(20, 24), steps, strict=True):
        assert_same_bits(step.token_T, batch.step([0], [start], [start + 1]).token_T)


def test_sizes_are_forgotten_when_there_were_too_many(
    whole: TextModel, counts: CountingRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeats, "_MOST_SIZES", 1)
    batch = Batch(whole, [20, 30])
    for _ in range(3):
        batch.decode(0)
        batch.decode(0, 1)
    assert counts.recorded == 0


def test_sizes_that_cannot_be_recorded_are_not_tried_again(
    whole: TextModel, counts: CountingRecorder
) -> None:
    counts.refuses = True
    got, want = Batch(whole, [20]), Batch(whole, [20], is_anew=True)
    for _ in range(5):
        assert_same_bits(got.decode(0), want.decode(0))
    assert (counts.recorded, counts.repeated) == (1, 0)


def test_a_recording_that_keeps_too_much_is_given_away(
    whole: TextModel, counts: CountingRecorder
) -> None:
    counts.claimed_bytes = repeats.MOST_BYTES + 1
    batch = Batch(whole, [20])
    for _ in range(5):
        batch.decode(0)
    assert (counts.recorded, counts.repeated) == (1, 0)


def test_the_oldest_recording_makes_room(whole: TextModel, counts: CountingRecorder) -> None:
    counts.claimed_bytes = repeats.MOST_BYTES // 2
    batch = Batch(whole, [20, 20, 20])
    for numbers in ((0,), (0, 1), (0, 1, 2)):
        batch.decode(*numbers)
        batch.decode(*numbers)  # recorded
    batch.decode(0, 1)
    batch.decode(0, 1, 2)
    assert (counts.recorded, counts.repeated) == (3, 2)
    batch.decode(0)
    assert (counts.recorded, counts.repeated) == (4, 2)


def test_recordings_that_are_given_away_are_made_anew(
    whole: TextModel, counts: CountingRecorder
) -> None:
    batch = Batch(whole, [20])
    for _ in range(3):
        batch.decode(0)
    assert (counts.recorded, counts.repeated) == (1, 1)
    assert whole.repeats is not None
    whole.repeats.clear()
    for _ in range(3):
        batch.decode(0)
    assert (counts.recorded, counts.repeated) == (2, 2)


def test_components_without_a_common_recorder_are_called_each_time() -> None:
    context = BuildContext(device="cpu", needs=ModelNeeds())
    mixed = cpu_parts(transform=build_transform(None, context))
    assert repeats.shared_recorder(mixed) is None
    assert repeats.shared_recorder(cpu_parts()) is kernel_recorder(kernel_cache_folder())
    assert tiny_model(Numerics()).repeats is None


@pytest.mark.parametrize(
    ("entries", "room"), [(1, 256), (256, 256), (257, 512), (2048, 2048), (9000, 9216)]
)
def test_scores_get_room_for_an_eighth_more_at_most(entries: int, room: int) -> None:
    assert repeats._rounded_up(entries) == room
    assert room <= max(entries + 255, entries * 9 / 8)
