"""Which object serves the slots of attention by kernels in TileLang?

One that attends, encodes and decodes cache rows, and scores and selects; each part is described in
its own module.
"""

from __future__ import annotations

from deepinfer_core.interfaces.component import Properties
from deepinfer_core.interfaces.operators.catalogue import Kernels
from deepinfer_core.plugin import BuildContext

from deepinfer_nvidia.attention.cache_codec import TileLangCacheCodec
from deepinfer_nvidia.attention.indexer import TileLangIndexer
from deepinfer_nvidia.attention.sparse_attention import TileLangSparseAttention
from deepinfer_nvidia.device.gpu import gpu_of
from deepinfer_nvidia.kernels.launch import kernels_for

__all__ = ["TileLangAttention", "build"]


class TileLangAttention(TileLangSparseAttention, TileLangIndexer, TileLangCacheCodec):
    """All of attention, in bf16, fp32 and the row-scaled number formats.

    Args:
        kernels: runs the kernels.
        is_hopper: whether they run on SM90, for which some are written apart.
    """

    def __init__(self, kernels: Kernels, *, is_hopper: bool = False) -> None:
        self._kernels = kernels
        TileLangSparseAttention.__init__(self, kernels, is_hopper=is_hopper)
        TileLangIndexer.__init__(self, kernels)
        TileLangCacheCodec.__init__(self, kernels)

    @property
    def properties(self) -> Properties:
        """The promises of this component."""
        return Properties(batch_invariant="always", deterministic="always", graph_safe="always")

    @property
    def kernels_built(self) -> int | None:
        """Kernels that were compiled or loaded so far."""
        return self._kernels.built


def build(options: None, context: BuildContext) -> TileLangAttention:
    """Build the component; it has no options.

    Args:
        options: None.
        context: says where compiled kernels are kept, or that this is a rehearsal.
    """
    return TileLangAttention(kernels_for(context), is_hopper=gpu_of(context).is_hopper)
