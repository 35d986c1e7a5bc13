"""How does a tile kernel run on a machine without its device?

The interpreter executes the frontend's PrimFunc, before any lowering, on CPU tensors: it finds
wrong results, indices out of range, unwritten memory and disagreeing lanes. It cannot see races,
barriers, layouts, registers or speed. Needs the extra ``tiles`` only to build the PrimFuncs.
"""

from deepinfer_core.testing.tiles.faults import (
    ArgumentMismatch,
    BarrierStall,
    ConflictingLanes,
    DoubledStore,
    EndlessLoop,
    FailedAssertion,
    IndexOutOfRange,
    TileFault,
    UnknownTileOperation,
    UnwrittenRead,
)
from deepinfer_core.testing.tiles.kernels import InterpretedKernels
from deepinfer_core.testing.tiles.program import Program, interpret
from deepinfer_core.testing.tiles.twins import register_function, register_twin

__all__ = [
    "ArgumentMismatch",
    "BarrierStall",
    "ConflictingLanes",
    "DoubledStore",
    "EndlessLoop",
    "FailedAssertion",
    "IndexOutOfRange",
    "InterpretedKernels",
    "Program",
    "TileFault",
    "UnknownTileOperation",
    "UnwrittenRead",
    "interpret",
    "register_function",
    "register_twin",
]
