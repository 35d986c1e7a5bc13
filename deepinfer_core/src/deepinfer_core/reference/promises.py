"""What do the reference components promise?"""

from deepinfer_core.interfaces.component import Properties

__all__ = ["PROMISES"]

PROMISES = Properties(batch_invariant="always", deterministic="always", graph_safe="never")
"""See ``arithmetic`` for the first; plain torch code allocates, so no graph could capture it."""
