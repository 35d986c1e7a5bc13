"""How are the kernels of many trials compiled before the first one runs?"""

from __future__ import annotations

import math
from collections.abc import Sequence

from deepinfer_core.engine.kernels.compiling import compile_all
from deepinfer_core.interfaces.operators.catalogue import Kernels
from deepinfer_core.interfaces.operators.wanted import KernelCompiler, WantedKernel
from deepinfer_core.telemetry.progress import ProgressStream
from deepinfer_core.testing.kernel_trials import KernelTrial

__all__ = ["compile_trials", "wanted_of"]


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
    wanted = [wanted_of(compiler, one) for one in trials]
    left = [
        one for one in dict.fromkeys(wanted) if not compiler.keeps(one.build, one.spec, one.tuning)
    ]
    done = compile_all(left, jobs, ProgressStream(), limit_s=limit_s) if left else []
    problems = {one.kernel: one.problem for one in done}
    return [problems.get(one, "") for one in wanted]


def wanted_of(compiler: KernelCompiler, trial: KernelTrial) -> WantedKernel:
    """The kernel of a trial."""
    build = trial.catalogue.load(trial.kernel)
    return WantedKernel(compiler=compiler, build=build, spec=trial.case.spec, tuning=trial.tuning)
