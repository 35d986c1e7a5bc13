"""Which kernels will the loads call, so that all are compiled before anything is built?

The loads run on a device that is not there, as an engine's warm-up does: compiling in parallel
takes a minute, one kernel after the other many. Kernels differ by the number of rows and by how
long a text is at most, so the shortest and the longest context stand for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from deepinfer_core.bench.layers.loads import Pool, Prompt
from deepinfer_core.engine.kernels.preparing import keep_kernels
from deepinfer_core.engine.kernels.rehearsal import absent_runner, has_kernels
from deepinfer_core.engine.rows import RowRequest, RowSettings
from deepinfer_core.interfaces.operators.wanted import Rehearsal, WantedKernel

if TYPE_CHECKING:
    from deepinfer_core.bench.layers.scales import Scale
    from deepinfer_core.config.settings import Settings
    from deepinfer_core.model.config import ModelConfig
    from deepinfer_core.plugin import Resolved
    from deepinfer_core.schedule.plan import StepPlan
    from deepinfer_core.telemetry.progress import ProgressStream

__all__ = ["keep_load_kernels", "load_kernels"]


def keep_load_kernels(
    scale: Scale,
    config: ModelConfig,
    pool: Pool,
    settings: Settings,
    resolved: Resolved,
    progress: ProgressStream,
) -> None:
    """Compile what the loads need and the cache folder lacks.

    Args:
        scale: the loads.
        config: of the model that will be built.
        pool: where texts will lie.
        settings: numerics and compilation.
        resolved: the choice of components.
        progress: told about the phase ``kernels.compile``, if there is something to compile.

    Raises:
        ConfigError: something is missing, and nothing can be written into the folder.
        DeviceError: a kernel cannot be compiled.
        NotSupported: a component lacks a format or width of the model.
    """
    if has_kernels(resolved):
        wanted = load_kernels(scale, config, pool, settings, resolved)
        keep_kernels(wanted, resolved.context.cache_dir, settings.kernels.compile_jobs, progress)


@torch.inference_mode()
def load_kernels(
    scale: Scale, config: ModelConfig, pool: Pool, settings: Settings, resolved: Resolved
) -> tuple[WantedKernel, ...]:
    """Every kernel that the loads call, once; see ``keep_load_kernels``."""
    rehearsal = Rehearsal()
    runner = absent_runner(
        config,
        settings,
        resolved,
        rehearsal,
        formats={},
        num_blocks=1 + pool.blocks,
        num_slots=1 + max(scale.sequences),
        max_backtracking=max(scale.rows),
    )
    for plan, drawn in _steps(scale, pool):
        step = runner.launch(plan, None)
        runner.sample(step, drawn)
        runner.results(step)
    return rehearsal.wanted


def _steps(scale: Scale, pool: Pool) -> Iterator[tuple[StepPlan, tuple[RowRequest, ...]]]:
    """One step of each size."""
    for tokens in sorted({*scale.prompts, scale.filled}):
        prompt = Prompt(tokens=tokens, chunk=scale.chunk)
        *others, last = prompt.plans(pool)
        yield from ((plan, ()) for plan in others)
        yield last, (RowRequest(0, tokens, RowSettings()),)
    contexts = {min(scale.contexts), max(scale.contexts)}
    for load in scale.decodings:
        if load.context in contexts:
            yield load.plan(pool, 0, is_first=True), load.drawn(0)
