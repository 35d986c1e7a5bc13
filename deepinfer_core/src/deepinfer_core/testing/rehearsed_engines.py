"""Which kernels will the small engines of tests call, so that all are compiled before the first?

Each is rehearsed on a device that is not there, as an engine's warm-up does it, and compiled by as
many processes as the machine has room for. Test processes wait for each other, and who comes later
finds everything.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from deepinfer_core.config.kernel_cache import require_writable
from deepinfer_core.engine.kernels.absent_drafter import AbsentDrafter
from deepinfer_core.engine.kernels.preparing import Prepared, compile_missing
from deepinfer_core.engine.kernels.rehearsal import RehearsingRunner, absent_model
from deepinfer_core.engine.readiness import StepSizes, rehearse, sizes_up_to
from deepinfer_core.engine.rows import RowRequest, RowSettings
from deepinfer_core.interfaces.device import InlineStream
from deepinfer_core.interfaces.drafter import DrafterCapabilities
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.interfaces.operators.wanted import Rehearsal, WantedKernel
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.plugin import Resolved
from deepinfer_core.schedule.plan import SequenceStep, StepPlan
from deepinfer_core.telemetry.progress import ProgressStream
from deepinfer_core.testing.cache_rows import regions
from deepinfer_core.testing.small_engines import EngineShape, small_engine

__all__ = ["RehearsedEngine", "compile_once", "engine_kernels"]

_LOCK = ".compiling"
"""In the folder of kernels; held by the test process that compiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedEngine:
    """What the kernels of a small engine depend on.

    Attributes:
        config: of its model.
        shape: sizes; the largest of several engines stands for all.
        has_drafts: whether there is a drafter.
        has_records: whether decode steps are recorded.
        most_scored: rows of a step that all give logits, beside those that are drawn from.
        alternatives: numbers of likeliest tokens that are reported.
        formats: of weights that are stored otherwise than the config declares, by name.
    """

    config: ModelConfig
    shape: EngineShape
    has_drafts: bool = False
    has_records: bool = False
    most_scored: int = 0
    alternatives: tuple[int, ...] = ()
    formats: Mapping[str, str] = field(default_factory=dict)


def engine_kernels(
    engines: Sequence[RehearsedEngine], resolved: Resolved, numerics: Numerics
) -> tuple[WantedKernel, ...]:
    """Rehearse engines.

    Args:
        engines: all that will be put together.
        resolved: the choice of components.
        numerics: roundings.

    Returns:
        Every kernel that they call, once.
    """
    rehearsal = Rehearsal()
    with torch.inference_mode():
        for one in engines:
            runner, sizes = _runner(one, resolved, numerics, rehearsal)
            rehearse(runner, sizes, records=one.has_records)
            for rows in sizes_up_to(one.most_scored) if one.most_scored else ():
                _score(runner, rows, one.shape.block_tokens, RowSettings())
            for number in one.alternatives:
                _score(runner, 2, one.shape.block_tokens, RowSettings(alternatives=number))
            _read(runner)
    return rehearsal.wanted


def compile_once(wanted: Sequence[WantedKernel], folder: str) -> Prepared:
    """Compile what the folder lacks, while no other process of the tests does.

    Args:
        wanted: all that will be called.
        folder: ``cache_dir`` of the components' context.

    Returns:
        What became of them; one that failed fails again where it is called.

    Raises:
        ConfigError: the folder cannot be written.
    """
    require_writable(folder)
    with _alone(Path(folder, _LOCK)):
        return compile_missing(tuple(wanted), folder, None, ProgressStream())


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _runner(
    one: RehearsedEngine, resolved: Resolved, numerics: Numerics, rehearsal: Rehearsal
) -> tuple[RehearsingRunner, StepSizes]:
    model, sampler = absent_model(one.config, numerics, resolved, rehearsal, formats=one.formats)
    shape, drafter = one.shape, None
    if one.has_drafts:
        drafter = AbsentDrafter(_capabilities(one))
    engine = small_engine(model, shape, sampler=sampler, drafter=drafter)
    runner = RehearsingRunner(
        model,
        engine.runner.caches,
        sampler,
        InlineStream(),
        vocabulary=one.config.text_config.vocab_size,
        truncation=shape.truncation,
        stage=engine.runner.stage,
    )
    sizes = StepSizes(
        max_rows=shape.max_rows,
        max_sequences=shape.max_sequences,
        max_tokens=shape.longest,
        block_tokens=shape.block_tokens,
        rows_each=1 + shape.drafts if one.has_drafts else 1,
    )
    return runner, sizes


def _capabilities(one: RehearsedEngine) -> DrafterCapabilities:
    """Of a drafter that runs the draft network, if that gives so many."""
    drafts = one.shape.drafts
    has_network = drafts < one.config.verified_rows
    return DrafterCapabilities(max_drafts=drafts, law="full", uses_block=has_network)


def _score(runner: RehearsingRunner, rows: int, block_tokens: int, settings: RowSettings) -> None:
    """A step of one text, all of whose rows give logits."""
    step = SequenceStep(
        sequence_id=0,
        start=0,
        token_ids=(0,) * rows,
        history=(-1, -1, -1),
        block_ids=(0,) * -(-rows // block_tokens),
        state_slot=0,
        wants_token=True,
        scored_rows=rows - 1,
    )
    handle = runner.launch(StepPlan((step,)), None)
    runner.sample(handle, tuple(RowRequest(row, 1, settings) for row in range(rows)))
    runner.results(handle)


def _read(runner: RehearsingRunner) -> None:
    """A row of each region of the caches, as ``testing.cache_rows`` reads them."""
    codec, device = runner.model.parts.codec, runner.device.torch_device
    for pages in regions(runner.caches).values():
        place_R = torch.zeros(1, dtype=torch.int64, device=device)
        codec.load(pages, place_R, torch.empty(1, pages.width, device=device))
