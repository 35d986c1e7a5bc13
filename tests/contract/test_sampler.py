"""Do core.reference and core.cpu keep the contract of sampler?"""

import pytest
from deepinfer_core.native import sampler as native_sampler
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.reference.sampler import ReferenceSampler, build
from deepinfer_core.testing.contracts import RatioRuleContract, SamplerContract


class TestReferenceSampler(SamplerContract, RatioRuleContract):
    @pytest.fixture
    def component(self) -> ReferenceSampler:
        return build(None, BuildContext(device="cpu", needs=ModelNeeds()))


class TestCpuSampler(SamplerContract, RatioRuleContract):
    @pytest.fixture
    def component(self, native_context: BuildContext) -> native_sampler.CpuSampler:
        return native_sampler.build(None, native_context)
