"""What happens between loading and the first request, so that no request waits for a compiler?

Where components compile kernels when they are first called, steps of every size run over the dummy
pages before the engine is ready. Then, where the device has graphs and every component promises
that it may be recorded, decode steps are recorded. What is compiled after that was late, and is
counted. The same steps, run on a device that is not there, tell which kernels will be needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deepinfer_core.engine.decode_graphs import DecodeGraphs
from deepinfer_core.engine.rows import DraftRequest, RowRequest, RowSettings
from deepinfer_core.engine.runner import ModelRunner
from deepinfer_core.interfaces.component import Component
from deepinfer_core.schedule.plan import SequenceStep, StepPlan
from deepinfer_core.telemetry.logs import get_logger
from deepinfer_core.telemetry.progress import ProgressStream

__all__ = [
    "BuiltKernels",
    "StepSizes",
    "can_record",
    "make_ready",
    "rehearse",
    "sizes_up_to",
    "warm_up_steps",
]

log = get_logger(__name__)

_DRAWN_SETTINGS = (
    RowSettings(seed=0),
    RowSettings(seed=0, temperature=1.0, top_p=0.9, top_k=8, min_p=0.01),
    RowSettings(seed=0, temperature=1.0, bias=((0, 1.0),), repetition_penalty=1.1),
    RowSettings(seed=0, allowed=(0,)),
    RowSettings(seed=0, allowed=(0,), bias=((0, 1.0),)),
)
"""Greedy, truncated, with rules, masked, and both: what kernels of samplers differ in."""

_FEW_ROWS = 8
"""Up to so many rows of a text, kernels may have a tile for each number of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSizes:
    """What a step may be.

    Attributes:
        max_rows: most rows.
        max_sequences: most sequences.
        max_tokens: longest text.
        block_tokens: tokens of a block.
        rows_each: most rows that a sequence feeds while it decodes: what is verified at once.
    """

    max_rows: int
    max_sequences: int
    max_tokens: int
    block_tokens: int
    rows_each: int = 1


class BuiltKernels:
    """How many kernels the components of an engine have built.

    Args:
        components: of the engine.
    """

    def __init__(self, components: list[Component]) -> None:
        # One object may fill several slots.
        self._components = list({id(one): one for one in components}.values())
        self._before = 0

    @property
    def are_built_late(self) -> bool:
        """Whether some component builds kernels when it is called."""
        return any(one.kernels_built is not None for one in self._components)

    @property
    def late(self) -> int:
        """Kernels built since the engine was ready."""
        return self._count() - self._before

    def ready(self) -> None:
        """The engine is ready: what is built from now on is late."""
        self._before = self._count()

    def _count(self) -> int:
        return sum(one.kernels_built or 0 for one in self._components)


def make_ready(
    runner: ModelRunner, sizes: StepSizes, progress: ProgressStream, *, records: bool
) -> BuiltKernels:
    """Run what has to run before the first request.

    Args:
        runner: over empty caches.
        sizes: of its steps.
        progress: told about the phases ``kernels.build`` and ``graphs.record``.
        records: whether decode steps are to be recorded, if they can be.

    Returns:
        The count of kernels built late.

    Raises:
        DeviceError: the device cannot record a step.
        Exception: whatever a component raises in a step.
    """
    built = BuiltKernels(_components(runner))
    if built.are_built_late:
        steps = list(warm_up_steps(sizes))
        with progress.phase("kernels.build", total=len(steps), unit="steps") as phase:
            for plan in steps:
                _run(runner, plan, sizes)
                phase.advance()
    if records and runner.truncation is None and can_record(runner):
        _record(runner, sizes, progress)
    built.ready()
    return built


def can_record(runner: ModelRunner) -> bool:
    """Whether decode steps can be recorded; the log says which components hinder it.

    On a device without graphs there is nothing to say.
    """
    if runner.device.properties.graph_safe != "always":
        return False
    components = _components(runner)
    hindering = {type(one).__name__ for one in components if one.properties.graph_safe != "always"}
    if hindering:
        log.info("graphs.skipped", because_of=sorted(hindering))
    return not hindering


def rehearse(runner: ModelRunner, sizes: StepSizes, *, records: bool) -> None:
    """Run every step that ``make_ready`` runs, on a device that is not there.

    Args:
        runner: its components have no kernels, or note down which they would call.
        sizes: of its steps.
        records: whether decode steps are to be recorded, if they can be.
    """
    for plan in warm_up_steps(sizes):
        _run(runner, plan, sizes)
    if records and runner.truncation is None:
        _graphs(runner, sizes).rehearse()


def warm_up_steps(sizes: StepSizes) -> Iterator[StepPlan]:
    """Steps of every size that kernels are built for: prompts, decoding, and both together.

    Decoding at the end of the longest text too: kernels may depend on how much there is to search.
    """
    longest = min(sizes.max_rows, sizes.max_tokens)
    few = range(1, min(longest, _FEW_ROWS) + 1)
    for rows in sorted({*sizes_up_to(longest), *few}, reverse=True):
        yield StepPlan((_step(rows, sizes),))
    for rows in reversed(sizes_up_to(sizes.max_sequences)):
        yield StepPlan((_step(1, sizes),) * rows)
    each = min(sizes.rows_each, longest)
    if each > 1:
        for texts in reversed(sizes_up_to(min(sizes.max_sequences, sizes.max_rows // each))):
            yield StepPlan((_step(each, sizes, is_verified=True),) * texts)
        for rows in range(each - 1, 1, -1):
            yield StepPlan((_step(rows, sizes, is_verified=True),))
    if sizes.max_tokens > 1:
        yield StepPlan((_step(1, sizes, start=sizes.max_tokens - 1),) * sizes.max_sequences)
    if longest < sizes.max_rows and sizes.max_sequences > 1:
        texts = min(sizes.max_rows // longest, sizes.max_sequences)
        yield StepPlan((_step(longest, sizes),) * texts)
    if sizes.max_rows > 1 and sizes.max_sequences > 1:
        chunk = min(sizes.max_rows - 1, sizes.max_tokens)
        yield StepPlan((_step(chunk, sizes), _step(1, sizes)))


def sizes_up_to(most: int) -> list[int]:
    """Powers of two up to ``most``, and ``most``: plans are made for these."""
    return sorted({1 << power for power in range(most.bit_length())} | {most})


def _step(
    rows: int, sizes: StepSizes, *, start: int = 0, is_verified: bool = False
) -> SequenceStep:
    """A piece of a text over the dummy pages; all rows of it but the last may be drafts."""
    return SequenceStep(
        sequence_id=0,
        start=start,
        token_ids=(0,) * rows,
        history=(-1, -1, -1),
        block_ids=(0,) * -(-(start + rows) // sizes.block_tokens),
        state_slot=0,
        wants_token=True,
        scored_rows=rows - 1 if is_verified else 0,
    )


def _run(runner: ModelRunner, plan: StepPlan, sizes: StepSizes) -> None:
    """Run a step; those of as many beginnings as may be, once for each way to draw."""
    starts, counts = zip(*[(one.start, one.scored_rows + 1) for one in plan.sequences], strict=True)
    is_widest = starts == (0,) * sizes.max_sequences and sum(counts) == plan.rows
    stage = runner.stage
    for settings in _DRAWN_SETTINGS if is_widest else _DRAWN_SETTINGS[:1]:
        rows = _row_requests(counts, settings, has_laws=stage is not None and stage.keeps_laws)
        wanted = () if stage is None else _draft_requests(len(starts), settings)
        handle = runner.launch(plan, None)
        runner.sample(handle, rows, wanted)
        runner.results(handle)


def _row_requests(
    counts: Sequence[int], settings: RowSettings, *, has_laws: bool
) -> tuple[RowRequest, ...]:
    """Draws of so many rows of each text; all but the last of each verify a draft."""
    is_last = [row == count for count in counts for row in range(1, count + 1)]
    drawn = [RowRequest(row, 1, settings) for row in range(len(is_last))]
    return tuple(
        [
            row if last else row._replace(draft=0, law_row=0 if has_laws else -1)
            for row, last in zip(drawn, is_last, strict=True)
        ]
    )


def _draft_requests(texts: int, settings: RowSettings) -> tuple[DraftRequest, ...]:
    """A round of drafts that nobody reads, behind the first row of each text."""
    return tuple([DraftRequest(0, row, 1, 0, 0, 0, settings) for row in range(texts)])


def _components(runner: ModelRunner) -> list[Component]:
    """All that a step calls; one object may fill several slots."""
    parts = runner.model.parts
    return [
        parts.prefill, parts.decode, parts.indexer, parts.codec, parts.dense, parts.grouped,
        parts.transform, parts.all_to_all, runner.sampler,
    ]  # fmt: skip


def _record(runner: ModelRunner, sizes: StepSizes, progress: ProgressStream) -> None:
    graphs = _graphs(runner, sizes)
    with progress.phase("graphs.record", total=len(graphs.rungs), unit="graphs") as phase:
        graphs.record(lambda rung: phase.advance())
    if graphs.recorded:
        runner.graphs = graphs


def _graphs(runner: ModelRunner, sizes: StepSizes) -> DecodeGraphs:
    return DecodeGraphs(
        runner.model,
        runner.caches,
        max_sequences=sizes.max_sequences,
        max_tokens=sizes.max_tokens,
        block_tokens=sizes.block_tokens,
        rows_each=sizes.rows_each,
    )
