"""What does one interpretation of a tile program carry from statement to statement?

A value is either uniform (a scalar) or one number for each lane. Lanes are the axes of a numpy
array: axis 0 of the interpreter is the *last* axis of the array, axis 1 the one before it and so
on, so that values of few axes broadcast against values of many. The thread indices of a block take
the first axes, parallel loops the next ones. A mask says which lanes take part; ``None`` says all.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Lanes", "Run", "any_lane", "both", "without"]

Lanes = NDArray[Any]


class Run:
    """The state of one interpretation.

    Attributes:
        values: what each variable of the program is bound to.
        views: what each buffer of the program looks like in memory.
        extents: how many lanes each axis has.
        merged: what the register that is being assigned held before.
        origins: the thread index of the first lane of each thread axis.
        mask: lanes that take part (boolean lanes), or None for all of them.
        core: the vector core that is running, where a block has several.
        deadline_s: when to give up, on the clock of ``time.process_time``.
        barriers: phase barriers of the block by number.
        threads: threads that perform a statement without lanes; 0 if nobody asks who stores what.
        stage: who runs, while warp groups run side by side; ``role`` is one's own number.
        stopped: lanes that left the innermost loop: None, True for all, or boolean lanes.
    """

    __slots__ = (
        "aranges",
        "barriers",
        "core",
        "deadline_s",
        "extents",
        "mask",
        "memories",
        "merged",
        "origins",
        "role",
        "stage",
        "stopped",
        "threads",
        "values",
        "views",
    )

    def __init__(self, variables: int, buffers: int, memories: int, axes: int) -> None:
        self.values: list[Any] = [None] * variables
        self.views: list[Any] = [None] * buffers
        self.memories: list[Any] = [None] * memories
        self.extents = [1] * axes
        self.origins = [0, 0, 0]
        self.mask: Any = None
        self.stopped: Any = None
        self.aranges: dict[tuple[int, int, int], Lanes] = {}
        self.barriers: dict[int, Any] = {}
        self.core = 0
        self.merged: Any = None
        self.stage: Any = None
        self.deadline_s = float("inf")
        self.role = 0
        self.threads = 0

    def split(self) -> "Run":
        """The same shared memory with variables, mask and loops of its own, for a warp group."""
        part = Run(0, 0, 0, 0)
        part.values, part.extents = list(self.values), list(self.extents)
        part.memories, part.origins = list(self.memories), list(self.origins)
        part.views, part.barriers = self.views, self.barriers
        part.mask, part.stopped, part.aranges = self.mask, self.stopped, self.aranges
        part.stage, part.role = self.stage, self.role
        part.deadline_s, part.threads = self.deadline_s, self.threads
        return part

    def lane_numbers(self, axis: int, count: int, first: int = 0) -> Lanes:
        """``first, first + 1, ...`` along one axis, int32, read-only by agreement."""
        key = (axis, count, first)
        found = self.aranges.get(key)
        if found is None:
            numbers = np.arange(first, first + count, dtype=np.int32)
            found = self.aranges[key] = numbers.reshape((count,) + (1,) * axis)
        return found


def both(mask: Any, condition: Any) -> Any:
    """Lanes of ``mask`` for which ``condition`` (boolean lanes) holds."""
    return condition if mask is None else mask & condition


def without(mask: Any, gone: Any) -> Any:
    """Lanes of ``mask`` that are not in ``gone`` (boolean lanes)."""
    return ~gone if mask is None else mask & ~gone


def any_lane(mask: Any) -> bool:
    """Whether a lane takes part."""
    return mask is None or bool(mask.any())
