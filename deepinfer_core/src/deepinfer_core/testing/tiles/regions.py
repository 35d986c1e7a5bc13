"""Which cells does a tile operation read or write?

A region is a start and an extent for each dimension. On-chip regions must lie inside their buffer.
Regions of global memory may hang over its end: what is outside reads as zero and is not written.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepinfer_core.testing.tiles.faults import (
    IndexOutOfRange,
    UnknownTileOperation,
    UnwrittenRead,
)
from deepinfer_core.testing.tiles.memory import View
from deepinfer_core.testing.tiles.run import Run
from deepinfer_core.testing.tiles.scope import Evaluate, Scope

__all__ = ["Region"]

Array = NDArray[Any]


class Region:
    """A translated ``tl.region``.

    Attributes:
        part: an axis and 0 or 1 where a vector core takes its half of the region.

    Args:
        scope: names of the program.
        node: the call, whose arguments are a load of the first cell, the access and the extents.
        translate: translates expressions.
    """

    __slots__ = ("extents", "facts", "is_global", "part", "per_lane", "starts")

    def __init__(
        self, scope: Scope, node: Any, translate: Callable[[Scope, Any], Evaluate]
    ) -> None:
        load = node.args[0]
        self.facts = scope.buffer(load.buffer)
        self.per_lane = self.facts.allocation.per_lane
        self.is_global = self.facts.allocation.scope == "global"
        self.part: tuple[int, int] | None = None
        self.starts = [translate(scope, index) for index in load.indices]
        self.extents = [translate(scope, extent) for extent in node.args[2:]]

    @property
    def dtype(self) -> str:
        """The format of the buffer's elements."""
        return str(self.facts.node.dtype)

    def view(self, run: Run) -> View:
        """The buffer in memory."""
        if self.per_lane:
            raise UnknownTileOperation(
                "region", f"a tile operation on per-thread memory {self.facts.allocation.name!r}"
            )
        view: View = run.views[self.facts.slot]
        return view

    def place(self, run: Run) -> tuple[View, list[int], list[int]]:
        """The buffer, first index and extent of each dimension."""
        view = self.view(run)
        starts = [start(run) for start in self.starts]
        extents = [extent(run) for extent in self.extents]
        for number in (*starts, *extents):
            if isinstance(number, np.ndarray):
                raise UnknownTileOperation("region", f"{view.name!r} at an index of one thread")
        if self.part is not None:
            axis, number = self.part
            extents[axis] //= 2
            starts[axis] += number * extents[axis]
        if not self.is_global:
            self.check_inside(view, starts, extents)
        return view, starts, extents

    def check_inside(self, view: View, starts: list[int], extents: list[int]) -> None:
        """Raise if an on-chip region leaves its buffer."""
        for dimension, (start, extent) in enumerate(zip(starts, extents, strict=True)):
            if start < 0 or start + extent > view.shape[dimension]:
                raise IndexOutOfRange(
                    f"a tile operation covers {start}..{start + extent - 1} in dimension "
                    f"{dimension} of {view.name!r} {list(view.shape)}"
                )

    def read(self, run: Run) -> Array:
        """The region's cells, zeros where global memory ends; never a view that a store changes.

        Raises:
            UnwrittenRead: an on-chip cell of the region was not written.
        """
        view, starts, extents = self.place(run)
        low, high = clip(view, starts, extents)
        inside = [b - a for a, b in zip(low, high, strict=True)]
        if inside == extents:
            return self.checked(view, low, inside)
        whole = np.zeros(extents, view.dtype)
        if min(inside) > 0:
            part = tuple(
                slice(a - start, b - start) for a, b, start in zip(low, high, starts, strict=True)
            )
            whole[part] = self.checked(view, low, inside)
        return whole

    def checked(self, view: View, low: list[int], shape: list[int]) -> Array:
        """Cells inside the buffer, after the check that they were written."""
        offset = sum(start * stride for start, stride in zip(low, view.strides, strict=True))
        if not view.memory.complete:
            missing = view.written_window(offset, shape, view.strides) != view.full
            if missing.any():
                cell = [int(n) for n in np.argwhere(missing)[0]]
                raise UnwrittenRead(
                    f"a tile operation reads {view.name!r} {list(view.shape)} from {low}, and its "
                    f"cell {cell} was not stored in this block",
                    hint="fill or clear the buffer first",
                )
        return view.window(offset, shape, view.strides)

    def write(self, run: Run, values: Any) -> None:
        """Store an array of the region's extents (or one value), clipped in global memory."""
        view, starts, extents = self.place(run)
        low, high = clip(view, starts, extents)
        inside = [b - a for a, b in zip(low, high, strict=True)]
        if min(inside, default=1) <= 0:
            return
        offset = sum(start * stride for start, stride in zip(low, view.strides, strict=True))
        if isinstance(values, np.ndarray) and inside != extents:
            values = values[
                tuple(slice(a - s, b - s) for a, b, s in zip(low, high, starts, strict=True))
            ]
        view.window(offset, inside, view.strides)[...] = values
        if not view.memory.complete:
            marks = view.written_window(offset, inside, view.strides)
            marks[...] = view.full
            if marks.size * view.dtype.itemsize == view.memory.size_bytes:
                view.memory.complete = True


def clip(view: View, starts: list[int], extents: list[int]) -> tuple[list[int], list[int]]:
    low = [min(max(start, 0), n) for start, n in zip(starts, view.shape, strict=True)]
    high = [
        max(min(start + extent, n), first)
        for start, extent, n, first in zip(starts, extents, view.shape, low, strict=True)
    ]
    return low, high
