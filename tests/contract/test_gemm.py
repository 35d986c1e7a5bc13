"""Do core.reference, however it keeps its weights, and core.cpu keep the contracts of gemm?"""

from types import SimpleNamespace

import pytest
from deepinfer_core.native import gemm as native_gemm
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.reference.gemm import ReferenceGemm, build
from deepinfer_core.testing.contracts import DenseGemmContract, GroupedGemmContract


@pytest.fixture(params=["widened", "stored"])
def component(request: pytest.FixtureRequest) -> ReferenceGemm:
    """Built for the dtype that the test sweeps, where it does."""
    sweeps = "compute" in request.fixturenames
    compute = request.getfixturevalue("compute") if sweeps else "bfloat16"
    options = SimpleNamespace(weights=request.param)
    return build(options, BuildContext(device="cpu", needs=ModelNeeds(compute=compute)))


class TestReferenceDenseGemm(DenseGemmContract):
    @pytest.fixture
    def component(self, component: ReferenceGemm) -> ReferenceGemm:
        return component


class TestReferenceGroupedGemm(GroupedGemmContract):
    @pytest.fixture
    def component(self, component: ReferenceGemm) -> ReferenceGemm:
        return component


class TestCpuDenseGemm(DenseGemmContract):
    compute_dtypes = ("bfloat16", "float32")
    activation_formats = ("mxfp8", "mxfp4")

    @pytest.fixture
    def component(self, native_context: BuildContext) -> native_gemm.CpuGemm:
        return native_gemm.build(None, native_context)


class TestCpuGroupedGemm(GroupedGemmContract):
    compute_dtypes = ("bfloat16", "float32")

    @pytest.fixture
    def component(self, native_context: BuildContext) -> native_gemm.CpuGemm:
        return native_gemm.build(None, native_context)
