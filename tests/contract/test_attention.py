"""Do core.reference and core.cpu keep the four contracts of attention?"""

import pytest
from deepinfer_core.native import attention as native_attention
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


@pytest.fixture
def native_component(native_context: BuildContext) -> native_attention.CpuAttention:
    return native_attention.build(None, native_context)


class TestCpuAttention(AttentionContract):
    compute_dtypes = ("bfloat16", "float32")
    source_formats = (
        ("mxfp8", "fp4_e4m3x16"),
        ("bfloat16", "bfloat16"),
        ("float32", "mxfp4"),
    )

    @pytest.fixture
    def component(
        self, native_component: native_attention.CpuAttention
    ) -> native_attention.CpuAttention:
        return native_component


class TestCpuWideAttention(TestCpuAttention):
    """Two blocks of heads, the second not full, and a width of no whole vectors."""

    heads = 11
    width = 96


class TestCpuCacheCodec(CacheCodecContract):
    compute_dtypes = ("bfloat16", "float32")
    cache_formats = ("mxfp8", "fp4_e4m3x16", "mxfp4", "bfloat16", "float32")

    @pytest.fixture
    def component(
        self, native_component: native_attention.CpuAttention
    ) -> native_attention.CpuAttention:
        return native_component


class TestCpuIndexer(IndexerContract):
    compute_dtypes = ("bfloat16", "float32")
    index_formats = ("mxfp4", "bfloat16", "float32")

    @pytest.fixture
    def component(
        self, native_component: native_attention.CpuAttention
    ) -> native_attention.CpuAttention:
        return native_component
