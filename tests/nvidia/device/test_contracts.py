"""Do the compiled kernels keep the contracts of their interfaces on the device?"""

from typing import ClassVar

import pytest
import torch
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.testing.contracts import (
    AllToAllContract,
    AttentionContract,
    CacheCodecContract,
    DenseGemmContract,
    GroupedGemmContract,
    IndexerContract,
    RatioRuleContract,
    SamplerContract,
    TransformContract,
)
from deepinfer_core.testing.tolerance import roundoff
from deepinfer_nvidia.all_to_all import tilelang as exchange
from deepinfer_nvidia.attention import tilelang as attention
from deepinfer_nvidia.gemm import tilelang as gemm
from deepinfer_nvidia.sampler import tilelang as sampler
from deepinfer_nvidia.transform import tilelang as transform

CONTEXT = BuildContext(device="nvidia", needs=ModelNeeds())
COMPUTE = ("bfloat16", "float32")


@pytest.fixture(scope="module")
def attends() -> attention.TileLangAttention:
    return attention.build(None, CONTEXT)


@pytest.fixture(scope="module")
def multiplies() -> gemm.TileLangGemm:
    return gemm.build(None, CONTEXT)


@pytest.fixture(scope="module")
def samples() -> sampler.TileLangSampler:
    return sampler.build(None, CONTEXT)


@pytest.fixture(scope="module")
def transforms() -> transform.TileLangTransform:
    return transform.build(None, CONTEXT)


class TestSparseAttention(AttentionContract):
    device = "cuda"
    compute_dtypes = COMPUTE
    source_formats: ClassVar[tuple[tuple[str, str], ...]] = (
        ("mxfp8", "fp4_e4m3x16"),
        ("bfloat16", "bfloat16"),
        ("bfloat16", "float32"),
    )
    weight_roundoff: ClassVar[float] = roundoff(torch.bfloat16)

    @pytest.fixture
    def component(self, attends: attention.TileLangAttention) -> attention.TileLangAttention:
        return attends


class TestCacheCodec(CacheCodecContract):
    device = "cuda"
    compute_dtypes = COMPUTE
    cache_formats: ClassVar[tuple[str, ...]] = (
        "mxfp8",
        "fp4_e4m3x16",
        "mxfp4",
        "bfloat16",
        "float32",
    )

    @pytest.fixture
    def component(self, attends: attention.TileLangAttention) -> attention.TileLangAttention:
        return attends


class TestIndexer(IndexerContract):
    device = "cuda"
    compute_dtypes = COMPUTE
    index_formats: ClassVar[tuple[str, ...]] = ("mxfp4", "bfloat16")

    @pytest.fixture
    def component(self, attends: attention.TileLangAttention) -> attention.TileLangAttention:
        return attends


class TestDense(DenseGemmContract):
    device = "cuda"
    compute_dtypes = COMPUTE
    weight_formats = ("fp8_32x32", "mxfp4", "bfloat16", "float32")

    @pytest.fixture
    def component(self, multiplies: gemm.TileLangGemm) -> gemm.TileLangGemm:
        return multiplies


class TestGrouped(GroupedGemmContract):
    device = "cuda"
    compute_dtypes = ("bfloat16",)

    @pytest.fixture
    def component(self, multiplies: gemm.TileLangGemm) -> gemm.TileLangGemm:
        return multiplies


class TestGroupedOfExactRows(GroupedGemmContract):
    """What is built where the model computes in fp32: experts stay as they are stored."""

    device = "cuda"
    compute_dtypes = ("float32",)

    @pytest.fixture
    def component(self) -> gemm.TileLangGemm:
        needs = ModelNeeds(compute="float32")
        return gemm.build(None, BuildContext(device="nvidia", needs=needs))


class TestExchange(AllToAllContract):
    device = "cuda"
    compute_dtypes = COMPUTE
    alignments: ClassVar[tuple[int, ...]] = (1,)

    @pytest.fixture
    def component(self) -> exchange.TileLangExchange:
        return exchange.build(None, CONTEXT)


class TestSampler(SamplerContract, RatioRuleContract):
    device = "cuda"

    @pytest.fixture
    def component(self, samples: sampler.TileLangSampler) -> sampler.TileLangSampler:
        return samples


class TestTransform(TransformContract):
    device = "cuda"
    compute_dtypes = COMPUTE

    @pytest.fixture
    def component(self, transforms: transform.TileLangTransform) -> transform.TileLangTransform:
        return transforms
