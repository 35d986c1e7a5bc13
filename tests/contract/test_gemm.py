"""Does core.reference keep the contracts of gemm, however it keeps its weights?"""

from types import SimpleNamespace

import pytest
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
