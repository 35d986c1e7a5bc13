"""Does core.reference keep the contract of sampler?"""

import pytest
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.reference.sampler import ReferenceSampler, build
from deepinfer_core.testing.contracts import SamplerContract


class TestReferenceSampler(SamplerContract):
    @pytest.fixture
    def component(self) -> ReferenceSampler:
        return build(None, BuildContext(device="cpu", needs=ModelNeeds()))
