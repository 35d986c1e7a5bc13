"""Does the NVIDIA indexer keep its contract, on interpreted kernels?"""

from typing import ClassVar

import pytest

from deepinfer_core.interfaces.attention import Indexer
from deepinfer_core.testing.contracts.indexer import IndexerContract
from deepinfer_core.testing.tiles import InterpretedKernels
from deepinfer_nvidia.attention.tilelang import TileLangAttention

KERNELS = InterpretedKernels()


class TestTileLangIndexer(IndexerContract):
    """The contract, without fp64, which no kernel knows."""

    compute_dtypes: ClassVar[tuple[str, ...]] = ("bfloat16", "float32")
    index_formats: ClassVar[tuple[str, ...]] = ("mxfp4", "bfloat16")

    @pytest.fixture
    def component(self) -> Indexer:
        """One object for all slots of attention."""
        return TileLangAttention(KERNELS)
