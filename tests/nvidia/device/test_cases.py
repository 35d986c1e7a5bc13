"""Does each kernel, compiled, compute on the device what its twin computes?

Kernels in the tile language and those for one architecture, beside each other; and each tuning that
launch code may choose.
"""

import pytest
import torch
from deepinfer_core.interfaces.operators.catalogue import Kernels
from deepinfer_core.testing.kernel_trials import KernelTrial, trials
from deepinfer_core.testing.seeds import seed_of
from deepinfer_nvidia.kernels.catalogue import catalogue

CATALOGUE = catalogue()
TRIALS = [trial for kernel in CATALOGUE.kernels for trial in trials(CATALOGUE, kernel)]


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    return CATALOGUE.open("")


@pytest.mark.parametrize("turn", [0, 1])
@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.id)
def test_a_kernel_equals_its_twin(
    kernels: Kernels, trial: KernelTrial, turn: int, request: pytest.FixtureRequest
) -> None:
    """Twice, with other numbers; the twin of a large case computes on the device too."""
    major, minor = torch.cuda.get_device_capability()
    if f"sm_{major}{minor}a" not in CATALOGUE.architectures_of(trial.kernel):
        pytest.skip("written for another architecture: nox -s 'device(nvidia)' on an H100 or H200")
    given = trial.case.arguments(torch.Generator().manual_seed(seed_of(request)))
    assert trial.complaints(kernels, given, "cuda") == []
