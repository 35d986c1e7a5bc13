"""Which object of the compiled set serves the four slots of attention?

One that attends, encodes and decodes cache rows, and scores and selects; each part is described in
its own module.
"""

from __future__ import annotations

import torch

from deepinfer_core.interfaces.component import Properties
from deepinfer_core.interfaces.recording import Recorder
from deepinfer_core.native.cache_codec import CpuCacheCodec
from deepinfer_core.native.indexer import CpuIndexer
from deepinfer_core.native.library import open_library
from deepinfer_core.native.promises import PROMISES
from deepinfer_core.native.recording import kernel_recorder
from deepinfer_core.native.sparse_attention import CpuSparseAttention
from deepinfer_core.plugin import BuildContext

__all__ = ["CpuAttention", "build"]


class CpuAttention(CpuSparseAttention, CpuIndexer, CpuCacheCodec):
    """All of attention, in bf16, fp32 and the row-scaled number formats.

    Args:
        cache_dir: folder of compiled kernels.
        threads: threads that share the rows of one call.

    Raises:
        DeviceError: the kernels cannot be compiled or loaded.
    """

    def __init__(self, cache_dir: str, *, threads: int = 1) -> None:
        library = open_library(cache_dir)
        CpuSparseAttention.__init__(self, library, threads)
        CpuIndexer.__init__(self, library, threads)
        CpuCacheCodec.__init__(self, library)
        self._recorder = kernel_recorder(cache_dir)

    @property
    def properties(self) -> Properties:
        """The promises of this component."""
        return PROMISES

    @property
    def recorder(self) -> Recorder:
        """All compiled kernels share one."""
        return self._recorder


def build(options: None, context: BuildContext) -> CpuAttention:
    """Build the component for all slots; it has no options.

    Args:
        options: None.
        context: ``cache_dir`` has the compiled kernels.
    """
    return CpuAttention(context.cache_dir, threads=torch.get_num_threads())
