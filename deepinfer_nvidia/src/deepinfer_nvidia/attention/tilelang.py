"""Which object serves the slots of attention by kernels in TileLang?

So far one that encodes and decodes cache rows, and scores and selects; each part is described in
its own module.
"""

from __future__ import annotations

from deepinfer_core.interfaces.component import Properties
from deepinfer_core.interfaces.operators.catalogue import Kernels
from deepinfer_core.plugin import BuildContext
from deepinfer_nvidia.attention.cache_codec import TileLangCacheCodec
from deepinfer_nvidia.attention.indexer import TileLangIndexer
from deepinfer_nvidia.kernels.catalogue import catalogue

__all__ = ["TileLangAttention", "build"]


class TileLangAttention(TileLangIndexer, TileLangCacheCodec):
    """The caches and the indexer, in bf16, fp32 and the row-scaled number formats.

    Args:
        kernels: runs the kernels.
    """

    def __init__(self, kernels: Kernels) -> None:
        TileLangIndexer.__init__(self, kernels)
        TileLangCacheCodec.__init__(self, kernels)

    @property
    def properties(self) -> Properties:
        """The promises of this component."""
        return Properties(batch_invariant="always", deterministic="always", graph_safe="always")


def build(options: None, context: BuildContext) -> TileLangAttention:
    """Build the component; it has no options.

    Args:
        options: None.
        context: not needed; kernels are compiled for the device of this process.
    """
    return TileLangAttention(catalogue().open())
