"""Which faults can a tile program show while it is interpreted, and what does each one mean?

    TileFault
    |- UnknownTileOperation   the program uses an operation that has no array meaning here
    |- ArgumentMismatch       a tensor does not fit the parameter it was bound to
    |- IndexOutOfRange        a lane that takes part reads or writes outside a buffer
    |- UnwrittenRead          on-chip memory is read that nobody wrote
    |- ConflictingLanes       two lanes of one statement write different values to one cell
    |- DoubledStore           they write the same value; a fault only where a run is told so
    |- FailedAssertion        an assertion that the program itself makes does not hold
    |- EndlessLoop            a while loop does not come to an end
    `- BarrierStall           every warp group waits for an arrival that will not come

Every one of them is a mistake of the kernel (or a gap of the interpreter, which says so by name);
none is ever swallowed, because on a device the same mistake has no message at all.
"""

from deepinfer_core.errors import DeepInferError

__all__ = [
    "ArgumentMismatch",
    "BarrierStall",
    "ConflictingLanes",
    "DoubledStore",
    "EndlessLoop",
    "FailedAssertion",
    "IndexOutOfRange",
    "TileFault",
    "UnknownTileOperation",
    "UnwrittenRead",
]


class TileFault(DeepInferError):
    """Root of what an interpreted tile program can raise."""

    code = "tile_fault"


class UnknownTileOperation(TileFault):
    """The program uses an operation, statement or format without a meaning here.

    Args:
        name: the operation's own name, as the tile language spells it.
        detail: what about it is unknown, when the operation itself is not.
    """

    code = "unknown_tile_operation"

    def __init__(self, name: str, detail: str = "") -> None:
        reason = f": {detail}" if detail else ""
        super().__init__(
            f"the tile program uses {name!r}, which the interpreter does not know{reason}",
            hint="express it with known operations, or register a numpy twin of that name",
        )
        self.name = name


class ArgumentMismatch(TileFault):
    """A tensor's dtype, shape or stride is not what the parameter declares."""

    code = "argument_mismatch"


class IndexOutOfRange(TileFault):
    """A lane that takes part in a statement addresses a cell outside the buffer."""

    code = "index_out_of_range"


class UnwrittenRead(TileFault):
    """On-chip memory is read before anything was stored there."""

    code = "unwritten_read"


class ConflictingLanes(TileFault):
    """Lanes of one statement store different values into the same cell."""

    code = "conflicting_lanes"


class DoubledStore(TileFault):
    """Lanes of one statement store the same value into the same cell of common memory.

    Only their equal values keep it from being a race. Raised where a run refuses it.
    """

    code = "doubled_store"


class FailedAssertion(TileFault):
    """A ``T.device_assert`` of the program does not hold for a lane that takes part."""

    code = "failed_assertion"


class EndlessLoop(TileFault):
    """A loop ran more often than any kernel has a reason to."""

    code = "endless_loop"


class BarrierStall(TileFault):
    """Warp groups wait for barriers that none of them completes."""

    code = "barrier_stall"
