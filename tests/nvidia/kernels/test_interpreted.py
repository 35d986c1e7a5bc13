"""Does each kernel, interpreted on a CPU, compute what its twin computes?"""

import pytest
import torch
from deepinfer_core.testing.kernel_trials import KernelTrial, trials
from deepinfer_core.testing.seeds import seed_of
from deepinfer_core.testing.tiles import InterpretedKernels
from deepinfer_nvidia.kernels.catalogue import catalogue

CATALOGUE = catalogue()
KERNELS = InterpretedKernels(refuse_doubled_stores=True)
SMALL = [
    trial
    for kernel in CATALOGUE.operators
    for trial in trials(CATALOGUE, kernel)
    if trial.case.small and trial.is_usual
]


@pytest.mark.parametrize("trial", SMALL, ids=lambda trial: trial.id)
def test_a_kernel_equals_its_twin(trial: KernelTrial, request: pytest.FixtureRequest) -> None:
    """Bits where the case has no bound; inputs stay as they were."""
    given = trial.case.arguments(torch.Generator().manual_seed(seed_of(request)))
    assert trial.complaints(KERNELS, given) == []


@pytest.mark.parametrize("kernel", CATALOGUE.kernels)
def test_every_kernel_has_a_case(kernel: str) -> None:
    """A kernel without a twin's word for it does not exist."""
    assert any(trial.case.small for trial in trials(CATALOGUE, kernel))
