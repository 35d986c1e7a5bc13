"""What is compiled before an engine starts, and ahead of time?

The cache folder is looked at first: where it has everything, nothing is started. What is missing is
compiled in parallel; the engine's warm-up then finds it in the folder.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from deepinfer_core.config.kernel_cache import require_writable
from deepinfer_core.config.settings import Settings
from deepinfer_core.engine.kernels.compiling import CompiledKernel, compile_all, default_jobs
from deepinfer_core.engine.kernels.rehearsal import has_kernels, wanted_kernels
from deepinfer_core.errors import DeviceError
from deepinfer_core.interfaces.operators.wanted import WantedKernel
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.plugin import Resolved
from deepinfer_core.plugin.cpu_facts import usable_threads
from deepinfer_core.reference.process_memory import process_memory
from deepinfer_core.telemetry.logs import get_logger
from deepinfer_core.telemetry.progress import ProgressStream

__all__ = ["Prepared", "compile_missing", "keep_kernels", "prepare_kernels"]

log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What became of all kernels of an engine.

    Attributes:
        found: those that the folder had before.
        tried: those that it had not.
        jobs: processes that compiled.
        elapsed_s: for all of it.
    """

    found: tuple[WantedKernel, ...]
    tried: tuple[CompiledKernel, ...]
    jobs: int
    elapsed_s: float

    @property
    def compiled(self) -> tuple[CompiledKernel, ...]:
        """Those that were compiled."""
        return tuple(one for one in self.tried if not one.problem)

    @property
    def failed(self) -> tuple[CompiledKernel, ...]:
        """Those that could not be."""
        return tuple(one for one in self.tried if one.problem)


def compile_missing(
    wanted: tuple[WantedKernel, ...], folder: str, jobs: int | None, progress: ProgressStream
) -> Prepared:
    """Compile what the folder lacks; one that lacks nothing need not be writable.

    Args:
        wanted: all that must be there.
        folder: ``cache_dir`` of the components' context; empty: none is known.
        jobs: processes at most; None: as many as the machine has room for.
        progress: told about the phase ``kernels.compile``, if there is something to compile.

    Raises:
        ConfigError: something is missing, and nothing can be written into the folder.
    """
    began_s = time.monotonic()
    kept = {one: one.compiler.keeps(one.build, one.spec, one.tuning) for one in wanted}
    missing = [one for one in wanted if not kept[one]]
    if missing and folder:
        require_writable(folder)
    room = default_jobs(usable_threads(), process_memory().free_bytes)
    jobs = min(jobs or room, len(missing))
    tried = compile_all(missing, jobs, progress) if missing else []
    return Prepared(
        found=tuple(one for one in wanted if kept[one]),
        tried=tuple(tried),
        jobs=jobs,
        elapsed_s=time.monotonic() - began_s,
    )


def prepare_kernels(
    config: ModelConfig,
    settings: Settings,
    resolved: Resolved,
    formats: Mapping[str, str],
    progress: ProgressStream,
) -> None:
    """Before an engine starts: find out which kernels it needs, and compile those that are missing.

    Args:
        config: of the checkpoint.
        settings: of the engine.
        resolved: the choice of components.
        formats: of weights that are stored otherwise than the config declares, by name.
        progress: told about the phase ``kernels.compile``, if there is something to compile.

    Raises:
        ConfigError: something is missing, and nothing can be written into the folder.
        DeviceError: a kernel cannot be compiled.
    """
    if not has_kernels(resolved):
        return
    try:
        wanted = wanted_kernels(config, settings, resolved, formats)
    except Exception as error:  # noqa: BLE001 - components are foreign code
        # Slower, not wrong: the warm-up compiles each kernel when it calls it.
        log.warning("kernels.not_rehearsed", reason=f"{type(error).__name__}: {error}")
        return
    keep_kernels(wanted, resolved.context.cache_dir, settings.kernels.compile_jobs, progress)


def keep_kernels(
    wanted: tuple[WantedKernel, ...], folder: str, jobs: int | None, progress: ProgressStream
) -> None:
    """Compile what the folder lacks, all of it.

    Args:
        wanted: all that must be there.
        folder: as in ``compile_missing``.
        jobs: likewise.
        progress: likewise.

    Raises:
        ConfigError: something is missing, and nothing can be written into the folder.
        DeviceError: a kernel cannot be compiled.
    """
    done = compile_missing(wanted, folder, jobs, progress)
    for one in done.failed:
        log.error("kernels.not_compiled", operator=one.kernel.operator, problem=one.problem)
    log.info(
        "kernels.prepared",
        found=len(done.found),
        compiled=len(done.compiled),
        failed=len(done.failed),
        jobs=done.jobs,
        elapsed_s=round(done.elapsed_s, 3),
    )
    if done.failed:
        first = done.failed[0]
        raise DeviceError(
            f"asked to compile {len(done.tried)} kernels, {len(done.failed)} failed, among them"
            f" {first.kernel.operator}: {first.problem}",
            hint="deepinfer kernels compile shows all of them; it also fills the cache folder on a"
            " machine that has a compiler",
        )
