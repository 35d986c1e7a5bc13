"""Does core.reference keep the contract of transform?"""

import pytest
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.reference.transform import ReferenceTransform, build
from deepinfer_core.testing.contracts import TransformContract


class TestReferenceTransform(TransformContract):
    @pytest.fixture
    def component(self) -> ReferenceTransform:
        return build(None, BuildContext(device="cpu", needs=ModelNeeds()))
