"""Do the products of the NVIDIA distribution keep the contracts, on interpreted kernels?"""

from __future__ import annotations

from typing import ClassVar

import pytest
from deepinfer_core.testing.contracts import DenseGemmContract, GroupedGemmContract
from deepinfer_core.testing.tiles import InterpretedKernels
from deepinfer_nvidia.gemm.tilelang import TileLangGemm

KERNELS = InterpretedKernels()


class TestDense(DenseGemmContract):
    compute_dtypes = ("bfloat16", "float32")
    shapes: ClassVar[tuple[tuple[int, int], ...]] = ((32, 4), (64, 33))

    @pytest.fixture
    def component(self) -> TileLangGemm:
        return TileLangGemm(KERNELS)


class TestGrouped(GroupedGemmContract):
    compute_dtypes = ("bfloat16",)

    @pytest.fixture
    def component(self) -> TileLangGemm:
        return TileLangGemm(KERNELS)


class TestGroupedInFp32(GroupedGemmContract):
    compute_dtypes = ("float32",)

    # Lanes walk K alone, so interpreting its 150 calls takes 20 seconds; left to the device.
    test_a_row_does_not_depend_on_the_other_rows_of_its_expert = None  # type: ignore[assignment]

    @pytest.fixture
    def component(self) -> TileLangGemm:
        return TileLangGemm(KERNELS)
