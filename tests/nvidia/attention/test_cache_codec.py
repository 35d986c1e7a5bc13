"""Does the NVIDIA cache codec keep its contract, on interpreted kernels?"""

from typing import ClassVar

import pytest
from deepinfer_core.interfaces.attention import CacheCodec
from deepinfer_core.testing.contracts.cache_codec import CacheCodecContract
from deepinfer_core.testing.tiles import InterpretedKernels
from deepinfer_nvidia.attention.tilelang import TileLangAttention

KERNELS = InterpretedKernels()


class TestTileLangCacheCodec(CacheCodecContract):
    """The contract, without fp64, which no kernel knows."""

    compute_dtypes: ClassVar[tuple[str, ...]] = ("bfloat16", "float32")
    cache_formats: ClassVar[tuple[str, ...]] = (
        "mxfp8",
        "fp4_e4m3x16",
        "mxfp4",
        "bfloat16",
        "float32",
    )

    @pytest.fixture
    def component(self) -> CacheCodec:
        """One object for all slots of attention."""
        return TileLangAttention(KERNELS)
