"""Does each kernel, compiled, compute on the device what its twin computes?

Kernels in the tile language and those for one architecture, beside each other; and each tuning that
launch code may choose.
"""

from collections.abc import Callable, Sequence

import pytest
import torch
from deepinfer_core.config.kernel_cache import kernel_cache_folder
from deepinfer_core.interfaces.operators.catalogue import Kernels
from deepinfer_core.interfaces.operators.wanted import WantedKernel
from deepinfer_core.testing.kernel_compiling import wanted_of
from deepinfer_core.testing.kernel_trials import KernelTrial, trials
from deepinfer_core.testing.seeds import seed_of
from deepinfer_nvidia.kernels.catalogue import catalogue

CATALOGUE = catalogue()
TRIALS = [trial for kernel in CATALOGUE.kernels for trial in trials(CATALOGUE, kernel)]


@pytest.fixture(scope="module")
def kernels(
    compile_ahead: Callable[[Sequence[WantedKernel], str], None], request: pytest.FixtureRequest
) -> Kernels:
    """Compiled for the trials that were asked for."""
    kernels = CATALOGUE.open(folder := kernel_cache_folder())
    compiler = kernels.compiler
    assert compiler is not None
    here = [item for item in request.session.items if item.path == request.path]
    chosen = [item.callspec.params["trial"] for item in here if isinstance(item, pytest.Function)]
    able = [one for one in chosen if _architecture() in CATALOGUE.architectures_of(one.kernel)]
    compile_ahead(list(dict.fromkeys(wanted_of(compiler, one) for one in able)), folder)
    return kernels


def _architecture() -> str:
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}a"


@pytest.mark.parametrize("turn", [0, 1])
@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.id)
def test_a_kernel_equals_its_twin(
    kernels: Kernels, trial: KernelTrial, turn: int, request: pytest.FixtureRequest
) -> None:
    """Twice, with other numbers; the twin of a large case computes on the device too."""
    if _architecture() not in CATALOGUE.architectures_of(trial.kernel):
        pytest.skip("written for another architecture: nox -s 'device(nvidia)' on an H100 or H200")
    given = trial.case.arguments(torch.Generator().manual_seed(seed_of(request)))
    assert trial.complaints(kernels, given, "cuda") == []
