"""How does a statement read and write cells of a buffer, for all lanes at once?

Affine indices become strided windows; all others become index arrays. Both check the same things:
lanes that take part stay inside the buffer, read only what was written, and never store different
values into one cell.
"""

from typing import Any

import numpy as np

from deepinfer_core.testing.tiles.faults import ConflictingLanes, IndexOutOfRange, UnwrittenRead
from deepinfer_core.testing.tiles.memory import View, address
from deepinfer_core.testing.tiles.run import Run, any_lane

__all__ = ["Window", "cell_numbers", "load_cells", "store_cells"]


class Window:
    """An affine access, evaluated: first cell, lane shape, steps.

    Args:
        axes: the lane axes that occur, highest first.
        steps: for each dimension of the buffer, its step on each of ``axes``.
    """

    __slots__ = ("axes", "injective", "ndim", "steps")

    def __init__(self, steps: list[dict[int, int]]) -> None:
        self.axes = sorted({axis for step in steps for axis in step}, reverse=True)
        self.steps = [[(axis, step) for axis, step in each.items()] for each in steps]
        self.ndim = self.axes[0] + 1 if self.axes else 0
        self.injective: dict[Any, bool] = {}

    def place(
        self, run: Run, view: View, bases: list[int]
    ) -> tuple[int, list[int], list[int]] | None:
        """Offset, lane shape and strides in elements; None if a lane would leave the buffer."""
        extents = run.extents
        shape, strides = [1] * self.ndim, [0] * self.ndim
        for axis in self.axes:
            shape[self.ndim - 1 - axis] = extents[axis]
        offset = 0
        for base, steps, extent, stride in zip(
            bases, self.steps, view.shape, view.strides, strict=True
        ):
            low = high = base
            for axis, step in steps:
                reach = step * (extents[axis] - 1)
                if reach < 0:
                    low += reach
                else:
                    high += reach
                strides[self.ndim - 1 - axis] += step * stride
            if low < 0 or high >= extent:
                return None
            offset += base * stride
        return offset, shape, strides

    def one_to_one(self, shape: list[int], strides: list[int]) -> bool:
        """Whether different lanes surely address different cells."""
        key = (*shape, *strides)
        found = self.injective.get(key)
        if found is None:
            reach = 0
            found = True
            for step, count in sorted((abs(s), n) for s, n in zip(strides, shape, strict=True)):
                if count > 1:
                    found = found and step > reach
                    reach += step * (count - 1)
            self.injective[key] = found
        return found


def cell_numbers(run: Run, view: View, indices: list[Any]) -> Any:
    """Flat cell numbers of evaluated indices; lanes that take no part are moved inside.

    Raises:
        IndexOutOfRange: a lane that takes part leaves the buffer.
    """
    total: Any = view.offset
    for dimension, index in enumerate(indices):
        inside = within(run, view, dimension, index)
        total = total + inside * view.strides[dimension]
    return total


def within(run: Run, view: View, dimension: int, index: Any) -> Any:
    extent = view.shape[dimension]
    if not isinstance(index, np.ndarray):
        if 0 <= index < extent:
            return int(index)
        check_lanes(run, view, dimension, np.asarray(index))
        return 0
    wide = index.astype(np.intp, copy=False)
    if wide.size and (wide.min() < 0 or wide.max() >= extent):
        check_lanes(run, view, dimension, wide)
        return np.clip(wide, 0, max(extent - 1, 0))
    return wide


def check_lanes(run: Run, view: View, dimension: int, index: Any) -> None:
    bad = (index < 0) | (index >= view.shape[dimension])
    if run.mask is not None:
        bad = bad & run.mask
    if not bad.any():
        return
    value = int(np.broadcast_to(index, bad.shape)[bad][0])
    raise IndexOutOfRange(
        f"index {value} of dimension {dimension} of {view.name!r} {list(view.shape)} "
        f"is outside 0..{view.shape[dimension] - 1}",
        hint="mask the lane, clamp the index, or check the loop bound and the offset",
    )


def load_cells(run: Run, view: View, cells: Any) -> Any:
    """The values of flat cells (an array or one number), checked to be written."""
    if not view.cells:
        return np.zeros(np.shape(cells), view.dtype)
    if view.marks is not None and not view.memory.complete:
        check_written(run, view, view.marks[cells], cells)
    return view.flat[cells] if isinstance(cells, int) else view.flat.take(cells)


def check_written(run: Run, view: View, marks: Any, cells: Any = None) -> None:
    """Raise unless every lane that takes part reads a written cell."""
    missing = np.asarray(marks != view.full)
    if run.mask is not None:
        missing = missing & run.mask
    if not missing.any():
        return
    where = ""
    if cells is not None:
        first = int(np.broadcast_to(cells, missing.shape)[missing][0])
        where = address(view, first)
    raise UnwrittenRead(
        f"{where or repr(view.name)} is read, and nothing was stored there in this block",
        hint="fill the buffer first, or mask the lanes that have no value",
    )


def store_cells(run: Run, view: View, cells: Any, value: Any) -> None:
    """Store lane values into flat cells, for lanes that take part.

    Raises:
        ConflictingLanes: two lanes disagree about one cell.
    """
    mask = run.mask
    if not isinstance(cells, np.ndarray) and not isinstance(value, np.ndarray):
        if any_lane(mask):
            mark(view, cells)
            view.flat[cells] = value
        return
    value = np.asarray(value, dtype=view.dtype)
    if mask is None:
        cells, value = np.broadcast_arrays(cells, value)
    else:
        cells, value, mask = np.broadcast_arrays(cells, value, mask)
        cells, value = cells[mask], value[mask]
    if cells.size:
        mark(view, cells)
        view.flat[cells] = value
        check_agreement(view, cells, value)


def mark(view: View, cells: Any) -> None:
    if view.marks is not None and not view.memory.complete:
        view.marks[cells] = view.full


def check_agreement(view: View, cells: Any, value: Any) -> None:
    """Raise unless every lane finds in its cell what it stored."""
    width = f"u{view.dtype.itemsize}"
    stored = np.ascontiguousarray(value).view(width)
    found = view.flat[cells].view(width)
    if (stored == found).all():
        return
    first = int(cells[stored != found].flat[0])
    raise ConflictingLanes(
        f"lanes of one statement store different values into {address(view, first)}",
        hint="give each lane a cell of its own, mask all lanes but one, or use an atomic operation",
    )
