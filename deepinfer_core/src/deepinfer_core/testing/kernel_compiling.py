"""How are the kernels of many trials compiled before the first one runs?"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from deepinfer_core.engine.kernels.compiling import compile_all
from deepinfer_core.interfaces.operators.catalogue import Kernels
from deepinfer_core.interfaces.operators.wanted import WantedKernel
from deepinfer_core.telemetry.progress import ProgressStream
from deepinfer_core.testing.kernel_trials import KernelTrial

__all__ = ["compile_trials"]

_TURNS = 4
"""Kernels that each process gets before the time is looked at."""

LATE = "there was no time left"


def compile_trials(
    kernels: Kernels, trials: Sequence[KernelTrial], *, jobs: int, limit_s: float = math.inf
) -> list[str]:
    """Compile what the folder of ``kernels`` lacks; in their order, several at once.

    Args:
        kernels: of the device, opened.
        trials: whose kernels.
        jobs: processes.
        limit_s: no more kernels are begun after it.

    Returns:
        Why each trial's kernel is not there; empty where it is, or where nothing is compiled.
    """
    compiler = kernels.compiler
    if compiler is None:
        return [""] * len(trials)
    wanted = [
        WantedKernel(
            compiler=compiler,
            build=one.catalogue.load(one.kernel),
            spec=one.case.spec,
            tuning=one.tuning,
        )
        for one in trials
    ]
    problems: dict[WantedKernel, str] = {}
    left = [
        one for one in dict.fromkeys(wanted) if not compiler.keeps(one.build, one.spec, one.tuning)
    ]
    ends_s = time.monotonic() + limit_s
    for start in range(0, len(left), _TURNS * jobs):
        batch = left[start : start + _TURNS * jobs]
        if time.monotonic() > ends_s:
            problems |= dict.fromkeys(batch, LATE)
            continue
        for done in compile_all(batch, jobs, ProgressStream()):
            problems[done.kernel] = done.problem
    return [problems.get(one, "") for one in wanted]
