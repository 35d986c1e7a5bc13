"""Does the kernel for SM90 keep the contract of attention on the device, at the model's shape?"""

from typing import ClassVar

import pytest
import torch
from deepinfer_core.interfaces.operators.catalogue import Kernels
from deepinfer_core.testing.contracts import AttentionContract
from deepinfer_core.testing.kernel_cases import KernelCase, cases_of, complaints
from deepinfer_core.testing.seeds import seed_of
from deepinfer_core.testing.tolerance import roundoff
from deepinfer_nvidia.attention.tilelang import TileLangAttention
from deepinfer_nvidia.kernels.catalogue import catalogue
from deepinfer_nvidia.kernels.hopper import attention_sparse as hopper_attention

CASES = [case for case in cases_of("attention_sparse") if hopper_attention.supports(case.spec)]


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("needs SM90: run nox -s 'device(nvidia)' on an H100 or H200")
    return catalogue().open("")


@pytest.mark.parametrize("turn", [0, 1])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_equals_its_twin(
    kernels: Kernels, case: KernelCase, turn: int, request: pytest.FixtureRequest
) -> None:
    """Twice, with other numbers."""
    given = case.arguments(torch.Generator().manual_seed(seed_of(request)))
    expected = case.expect({name: tensor.clone() for name, tensor in given.items()})
    results = {name: tensor.cuda() for name, tensor in given.items()}
    kernels.call(hopper_attention.build, case.spec, hopper_attention.Tuning(), **results)
    on_host = {name: tensor.cpu() for name, tensor in results.items()}
    assert complaints(case, given, expected, on_host) == []


class TestHopperAttention(AttentionContract):
    device = "cuda"
    heads: ClassVar[int] = 64
    width: ClassVar[int] = 512
    compute_dtypes = ("bfloat16",)
    source_formats: ClassVar[tuple[tuple[str, str], ...]] = (
        ("mxfp8", "fp4_e4m3x16"),
        ("bfloat16", "mxfp8"),
    )
    weight_roundoff: ClassVar[float] = roundoff(torch.bfloat16)

    @pytest.fixture
    def component(self, kernels: Kernels) -> TileLangAttention:
        return TileLangAttention(kernels, is_hopper=True)
