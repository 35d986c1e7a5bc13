"""Does the kernel for SM90 keep the contract of attention on the device, at the model's shape?"""

from typing import ClassVar

import pytest
import torch
from deepinfer_core.interfaces.operators.catalogue import Kernels
from deepinfer_core.testing.contracts import AttentionContract
from deepinfer_core.testing.tolerance import roundoff
from deepinfer_nvidia.attention.tilelang import TileLangAttention
from deepinfer_nvidia.kernels.catalogue import catalogue


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("needs SM90: run nox -s 'device(nvidia)' on an H100 or H200")
    return catalogue().open("")


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
