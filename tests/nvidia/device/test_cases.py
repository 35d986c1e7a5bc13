"""Does each kernel, compiled, compute on the device what its twin computes?"""

import pytest
import torch
from deepinfer_core.interfaces.operators.catalogue import Kernels
from deepinfer_core.testing.kernel_cases import KernelCase, all_cases, complaints
from deepinfer_core.testing.seeds import seed_of
from deepinfer_nvidia.kernels.catalogue import catalogue

CATALOGUE = catalogue()
CASES = [case for case in all_cases() if case.operator in CATALOGUE.operators]


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    return CATALOGUE.open("")


@pytest.mark.parametrize("turn", [0, 1])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_kernel_equals_its_twin(
    kernels: Kernels, case: KernelCase, turn: int, request: pytest.FixtureRequest
) -> None:
    """Twice, with other numbers; the twin of a large case computes on the device too."""
    given = case.arguments(torch.Generator().manual_seed(seed_of(request)))
    place = "cpu" if case.small else "cuda"
    expected = case.expect({name: tensor.clone().to(place) for name, tensor in given.items()})
    results = {name: tensor.cuda() for name, tensor in given.items()}
    tuning = CATALOGUE.tune(case.operator, case.spec)
    kernels.call(CATALOGUE.load(case.operator), case.spec, tuning, **results)
    on_host = [
        {name: tensor.cpu() for name, tensor in part.items()} for part in (expected, results)
    ]
    assert complaints(case, given, *on_host) == []
