"""Does core.reference keep the four contracts of attention?"""

import pytest
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.reference.attention import ReferenceAttention, build
from deepinfer_core.testing.contracts import (
    AttentionContract,
    CacheCodecContract,
    IndexerContract,
)


@pytest.fixture
def component() -> ReferenceAttention:
    return build(None, BuildContext(device="cpu", needs=ModelNeeds()))


class TestReferenceAttention(AttentionContract):
    @pytest.fixture
    def component(self, component: ReferenceAttention) -> ReferenceAttention:
        return component


class TestReferenceCacheCodec(CacheCodecContract):
    @pytest.fixture
    def component(self, component: ReferenceAttention) -> ReferenceAttention:
        return component


class TestReferenceIndexer(IndexerContract):
    @pytest.fixture
    def component(self, component: ReferenceAttention) -> ReferenceAttention:
        return component
