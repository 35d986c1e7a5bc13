"""Does each kernel, interpreted on a CPU, compute what its twin computes?"""

import pytest
import torch
from deepinfer_core.testing.kernel_cases import KernelCase, all_cases, complaints
from deepinfer_core.testing.seeds import seed_of
from deepinfer_core.testing.tiles import InterpretedKernels
from deepinfer_nvidia.kernels.catalogue import catalogue

CATALOGUE = catalogue()
KERNELS = InterpretedKernels()
SMALL = [case for case in all_cases() if case.small and case.operator in CATALOGUE.operators]


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.id)
def test_a_kernel_equals_its_twin(case: KernelCase, request: pytest.FixtureRequest) -> None:
    """Bits where the case has no bound; inputs stay as they were."""
    generator = torch.Generator().manual_seed(seed_of(request))
    given = case.arguments(generator)
    expected = case.expect({name: tensor.clone() for name, tensor in given.items()})
    results = {name: tensor.clone() for name, tensor in given.items()}
    tuning = CATALOGUE.tune(case.operator, case.spec)
    KERNELS.call(CATALOGUE.load(case.operator), case.spec, tuning, **results)
    assert complaints(case, given, expected, results) == []


@pytest.mark.parametrize("operator", CATALOGUE.operators)
def test_every_kernel_has_a_case(operator: str) -> None:
    """A kernel without a twin's word for it does not exist."""
    assert any(case.operator == operator for case in SMALL)
