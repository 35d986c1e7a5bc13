"""Which object serves the four slots of attention?

One that attends, encodes and decodes cache rows, and scores and selects; each part is described in
its own module.
"""

from deepinfer_core.interfaces.component import Properties
from deepinfer_core.plugin import BuildContext
from deepinfer_core.reference.cache_codec import ReferenceCacheCodec
from deepinfer_core.reference.indexer import ReferenceIndexer
from deepinfer_core.reference.promises import PROMISES
from deepinfer_core.reference.sparse_attention import ReferenceSparseAttention

__all__ = ["ReferenceAttention", "build"]


class ReferenceAttention(ReferenceSparseAttention, ReferenceIndexer, ReferenceCacheCodec):
    """All of attention, in any plain or row-scaled number format."""

    @property
    def properties(self) -> Properties:
        """The promises of this component."""
        return PROMISES


def build(options: None, context: BuildContext) -> ReferenceAttention:
    """Build the component for all slots; it has no options."""
    return ReferenceAttention()
