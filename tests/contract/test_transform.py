"""Do core.reference and core.cpu keep the contract of transform?"""

import pytest
from deepinfer_core.native import transform as native_transform
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.reference.transform import ReferenceTransform, build
from deepinfer_core.testing.contracts import TransformContract


class TestReferenceTransform(TransformContract):
    @pytest.fixture
    def component(self) -> ReferenceTransform:
        return build(None, BuildContext(device="cpu", needs=ModelNeeds()))


class TestCpuTransform(TransformContract):
    compute_dtypes = ("bfloat16", "float32")

    @pytest.fixture
    def component(self, native_context: BuildContext) -> native_transform.CpuTransform:
        return native_transform.build(None, native_context)
