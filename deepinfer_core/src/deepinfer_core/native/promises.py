"""What do the components of ``core.cpu`` promise?"""

from deepinfer_core.interfaces.component import Properties

__all__ = ["PROMISES"]

PROMISES = Properties(batch_invariant="always", deterministic="always", graph_safe="never")
"""Every kernel fixes the order of each sum on its own; kernels allocate scratch space."""
