"""How does a tile operation work on memory that every lane has for itself?

Clearing and filling a thread's own array is the same for each lane that takes part.
"""

from typing import Any

import numpy as np

from deepinfer_core.testing.tiles import formats
from deepinfer_core.testing.tiles.memory import LaneMemory
from deepinfer_core.testing.tiles.run import Run
from deepinfer_core.testing.tiles.scope import BufferFacts, Evaluate, Perform, Scope

__all__ = ["fill_lanes"]


def fill_lanes(scope: Scope, facts: BufferFacts, value: Evaluate) -> Perform:
    """The closure that stores one value into every cell of a lane buffer."""
    name = str(facts.node.dtype)
    dtype = formats.numpy_dtype(name)
    slot = facts.allocation.slot
    scope.lane_stores.add(slot)

    def perform(run: Run) -> None:
        memory: LaneMemory = run.memories[slot]
        stored: Any = np.asarray(formats.cast(value(run), name))
        mask = np.ones((), bool) if run.mask is None else run.mask
        wanted = np.broadcast_shapes(memory.raw.shape[:-1], stored.shape, mask.shape)
        if wanted != memory.raw.shape[:-1]:
            memory.widen(wanted)
        where = mask[..., None]
        np.copyto(memory.raw.view(dtype), stored[..., None], where=where, casting="unsafe")
        np.copyto(memory.written, 1, where=where, casting="unsafe")

    return perform
