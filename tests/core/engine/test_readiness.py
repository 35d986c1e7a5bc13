"""Does an engine compile and record before it is ready, where there is something to, and count?"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from deepinfer_core.cache.replay import DecoderTruncation
from deepinfer_core.engine.readiness import (
    BuiltKernels,
    StepSizes,
    make_ready,
    sizes_up_to,
    warm_up_steps,
)
from deepinfer_core.engine.runner import ModelRunner
from deepinfer_core.interfaces.component import Plan, Promise, Properties
from deepinfer_core.interfaces.device import InlineStream
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.interfaces.transform import TransformSpec
from deepinfer_core.model.caches import allocate_caches
from deepinfer_core.reference.promises import PROMISES
from deepinfer_core.reference.sampler import ReferenceSampler
from deepinfer_core.reference.transform import ReferenceTransform
from deepinfer_core.schedule.plan import SequenceStep, StepPlan
from deepinfer_core.telemetry.progress import PhaseFinished, ProgressStream
from deepinfer_core.testing.events import captured_events
from deepinfer_core.testing.rerun_device import RerunDevice
from deepinfer_core.testing.small_engines import slim_config
from deepinfer_core.testing.tiny_model import reference_parts, tiny_model

NUMERICS = Numerics()
SIZES = StepSizes(max_rows=24, max_sequences=4, max_tokens=40, block_tokens=16)


@pytest.mark.parametrize(
    ("most", "sizes"),
    [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (4, [1, 2, 4]), (9, [1, 2, 4, 8, 9])],
)
def test_sizes_are_powers_of_two_and_the_most(most: int, sizes: list[int]) -> None:
    assert sizes_up_to(most) == sizes


def test_steps_of_every_size_are_run_and_none_beyond_the_limits() -> None:
    counts = [[len(one.token_ids) for one in plan.sequences] for plan in warm_up_steps(SIZES)]
    prompts = [[24], [16], [8], [7], [6], [5], [4], [3], [2], [1]]
    assert counts == [*prompts, [1] * 4, [1] * 2, [1], [1] * 4, [23, 1]]
    for plan in warm_up_steps(SIZES):
        for one in plan.sequences:
            assert set(one.block_ids) == {0}
            assert one.state_slot == 0
            assert one.start + len(one.token_ids) <= min(16 * len(one.block_ids), SIZES.max_tokens)
    *_, ends, _ = warm_up_steps(SIZES)
    assert [one.start for one in ends.sequences] == [SIZES.max_tokens - 1] * 4


@pytest.mark.parametrize(
    ("each", "max_tokens", "counts"),
    [
        (6, 40, [[6] * 4, [6] * 2, [6]]),
        (7, 40, [[7] * 3, [7] * 2, [7]]),
        (24, 40, [[24]]),
        (25, 5, [[5] * 4, [5] * 2, [5]]),
    ],
)
def test_steps_of_as_many_rows_a_text_as_are_verified_at_once_are_run(
    each: int, max_tokens: int, counts: list[list[int]]
) -> None:
    plans = list(warm_up_steps(replace(SIZES, rows_each=each, max_tokens=max_tokens)))
    found = [[len(one.token_ids) for one in plan.sequences] for plan in plans]
    behind = found[found.index([1] * 4) :]
    # Then any smaller number of rows of one text, as few texts may verify few drafts.
    counts += [[rows] for rows in range(counts[-1][0] - 1, 1, -1)]
    assert behind[3 : 3 + len(counts)] == counts
    assert behind[3 + len(counts)] == [1] * 4
    plans = [plan for plan in plans if all(one.scored_rows for one in plan.sequences)]
    assert [[len(one.token_ids) for one in plan.sequences] for plan in plans] == counts
    assert all(one.scored_rows == len(one.token_ids) - 1 for p in plans for one in p.sequences)


def test_a_prompt_is_no_longer_than_a_text() -> None:
    plans = list(warm_up_steps(replace(SIZES, max_tokens=5)))
    assert max(len(one.token_ids) for plan in plans for one in plan.sequences) == 5


def test_a_step_may_have_more_rows_than_a_text() -> None:
    counts = [plan.rows for plan in warm_up_steps(replace(SIZES, max_tokens=5))]
    assert counts[-2:] == [20, 6]  # four texts, and a text with a row beside it
    alone = [plan.rows for plan in warm_up_steps(replace(SIZES, max_tokens=5, max_sequences=1))]
    assert max(alone) == 5


@pytest.mark.parametrize("sizes", [{"max_rows": 1}, {"max_sequences": 1}])
def test_an_engine_that_never_mixes_steps_warms_none_up(sizes: dict[str, int]) -> None:
    plans = list(warm_up_steps(replace(SIZES, **{"max_rows": 4, "max_sequences": 1, **sizes})))
    assert all(len(set(map(len, (one.token_ids for one in p.sequences)))) == 1 for p in plans)


class Building(ReferenceTransform):
    """Builds a kernel for each size of plan that is new."""

    def __init__(self) -> None:
        self.built: set[int] = set()

    @property
    def kernels_built(self) -> int:
        return len(self.built)

    def plan(self, spec: TransformSpec, max_rows: int) -> Plan:
        self.built.add(max_rows)
        return super().plan(spec, max_rows)


MakeRunner = Callable[..., ModelRunner]


class Recordable:
    """A component that promises what it is told to."""

    def __init__(self, component: Any, promise: Promise) -> None:
        self._component = component
        self.properties: Properties = replace(PROMISES, graph_safe=promise)
        self.kernels_built = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._component, name)


@pytest.fixture
def make_runner() -> MakeRunner:
    def make(promise: Promise = "always", never: str = "", **changes: Any) -> ModelRunner:
        device = RerunDevice()
        plain = replace(reference_parts(NUMERICS), device=device, **changes)
        names = ("prefill", "decode", "indexer", "codec", "dense", "grouped", "transform")
        promised: dict[str, Any] = {
            name: Recordable(getattr(plain, name), "never" if name == never else promise)
            for name in names
            if name not in changes
        }
        parts = replace(plain, **promised)
        model = tiny_model(NUMERICS, config=slim_config(16), parts=parts)
        caches = allocate_caches(
            model.config, NUMERICS, parts.codec, device,
            num_blocks=4, num_slots=3, max_backtracking=6, block_tokens=16,
        )  # fmt: skip
        sampler: Any = Recordable(ReferenceSampler(), promise)
        return ModelRunner(model, caches, sampler, InlineStream(), vocabulary=288)

    return make


def phases(seen: list[Any]) -> list[tuple[str, int]]:
    return [(one.phase, one.done) for one in seen if isinstance(one, PhaseFinished)]


@pytest.fixture
def seen() -> list[Any]:
    return []


@pytest.fixture
def progress(seen: list[Any]) -> ProgressStream:
    return ProgressStream(seen.append)


def test_what_is_built_before_the_engine_is_ready_is_not_late(
    make_runner: MakeRunner, progress: ProgressStream, seen: list[Any]
) -> None:
    transform = Building()
    runner = make_runner(transform=transform)
    built = make_ready(runner, SIZES, progress, records=False)
    assert transform.kernels_built > 0
    assert built.late == 0
    assert phases(seen) == [("kernels.build", 15)]
    transform.built.add(999)
    assert built.late == 1


def test_steps_within_the_limits_build_nothing_more(
    make_runner: MakeRunner, progress: ProgressStream
) -> None:
    runner = make_runner(transform=Building())
    built = make_ready(runner, SIZES, progress, records=False)
    for rows in (1, 3, 7, 24):
        step = SequenceStep(1, 0, (5,) * rows, (-1, -1, -1), (1, 2), 1, wants_token=True)
        runner.results(runner.launch(StepPlan((step,)), None))
    assert built.late == 0


def test_a_component_of_several_slots_is_counted_once() -> None:
    component = Building()
    built = BuiltKernels([component, component])
    component.built.update((1, 2, 4))
    assert built.late == 3


def test_where_nothing_is_built_nothing_runs(
    make_runner: MakeRunner, progress: ProgressStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = make_runner("never")
    monkeypatch.setattr(runner, "launch", None)
    assert make_ready(runner, SIZES, progress, records=True).late == 0
    assert runner.graphs is None


def test_decode_steps_are_recorded_where_all_components_promise_it(
    make_runner: MakeRunner, progress: ProgressStream, seen: list[Any]
) -> None:
    runner = make_runner()
    make_ready(runner, SIZES, progress, records=True)
    assert runner.graphs is not None
    assert runner.graphs.recorded == 4  # rows 1, 2, 3 and 4 over one reach
    assert phases(seen) == [("graphs.record", 4)]


def test_a_device_without_graphs_is_no_news(
    make_runner: MakeRunner, progress: ProgressStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RerunDevice, "properties", PROMISES)
    runner = make_runner()
    with captured_events() as logs:
        make_ready(runner, SIZES, progress, records=True)
    assert (runner.graphs, logs) == (None, [])


@pytest.mark.parametrize("never", ["prefill", "decode", "indexer", "codec", "dense", "transform"])
def test_one_component_that_does_not_promise_it_leaves_all_steps_unrecorded(
    make_runner: MakeRunner, progress: ProgressStream, never: str
) -> None:
    runner = make_runner(never=never)
    with captured_events() as logs:
        make_ready(runner, SIZES, progress, records=True)
    assert runner.graphs is None
    [entry] = logs
    assert (entry["event"], entry["because_of"]) == ("graphs.skipped", ["Recordable"])


def test_nothing_is_recorded_that_was_not_asked_for_or_is_truncated(
    make_runner: MakeRunner, progress: ProgressStream
) -> None:
    runner = make_runner()
    make_ready(runner, SIZES, progress, records=False)
    assert runner.graphs is None
    runner.truncation = DecoderTruncation(mode="mask", keep_tokens=22)
    make_ready(runner, SIZES, progress, records=True)
    assert runner.graphs is None
