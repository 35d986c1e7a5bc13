"""How does a statement read and write memory that every lane has for itself?

An index that is the same for all lanes picks one column; an index that differs picks one cell in
each lane's own copy. A store by more lanes than the memory has so far widens it first.
"""

from typing import Any

import numpy as np

from deepinfer_core.testing.tiles.faults import IndexOutOfRange, UnwrittenRead
from deepinfer_core.testing.tiles.formats import numpy_dtype
from deepinfer_core.testing.tiles.memory import LaneMemory, all_bits, row_major
from deepinfer_core.testing.tiles.run import Run
from deepinfer_core.testing.tiles.scope import BufferFacts, Evaluate, Perform

__all__ = ["load_lane_cell", "store_lane_cell"]


class Cells:
    """Typed access to one lane buffer."""

    __slots__ = ("count", "dtype", "full", "marks", "memory", "name", "shape", "strides")

    def __init__(self, facts: BufferFacts) -> None:
        node = facts.node
        self.name = str(node.name)
        self.memory = facts.allocation.slot
        self.dtype = numpy_dtype(str(node.dtype))
        self.shape = tuple(int(extent) for extent in node.shape)
        self.strides = row_major(self.shape)
        self.count = int(np.prod(self.shape))
        ratio = self.dtype.itemsize // facts.allocation.granule_bytes
        self.marks, self.full = np.dtype(f"u{ratio}"), all_bits(ratio)

    def number(self, run: Run, indices: list[Evaluate]) -> Any:
        """The flat cell of each lane, checked for lanes that take part."""
        total: Any = 0
        for dimension, index in enumerate(indices):
            total = total + self.within(run, dimension, index(run)) * self.strides[dimension]
        return total

    def within(self, run: Run, dimension: int, index: Any) -> Any:
        """``index``, with lanes that take no part moved inside."""
        extent = self.shape[dimension]
        if not isinstance(index, np.ndarray) and 0 <= index < extent:
            return int(index)
        inside = np.asarray((index >= 0) & (index < extent))
        outside = ~inside if run.mask is None else ~inside & run.mask
        if outside.any():
            value = np.broadcast_to(index, outside.shape)[outside][0]
            raise IndexOutOfRange(
                f"index {value} of dimension {dimension} of {self.name!r} "
                f"{list(self.shape)} is outside 0..{extent - 1}"
            )
        return np.clip(index, 0, extent - 1)


def load_lane_cell(facts: BufferFacts, indices: list[Evaluate], *, python_int: bool) -> Evaluate:
    """The closure of a load from lane memory."""
    cells = Cells(facts)

    def evaluate(run: Run) -> Any:
        memory: LaneMemory = run.memories[cells.memory]
        cell = cells.number(run, indices)
        if not memory.complete:
            check_lane_written(run, cells, pick(memory.written.view(cells.marks), cell))
        value = pick(memory.raw.view(cells.dtype), cell)
        if isinstance(value, np.ndarray) and value.ndim:
            return value
        return int(value) if python_int else value[()]

    return evaluate


def pick(data: Any, cell: Any) -> Any:
    if not isinstance(cell, np.ndarray):
        return data[..., cell]
    lanes = np.broadcast_shapes(data.shape[:-1], cell.shape)
    wide = np.broadcast_to(data, (*lanes, data.shape[-1]))
    return np.take_along_axis(wide, np.broadcast_to(cell, lanes)[..., None], -1)[..., 0]


def check_lane_written(run: Run, cells: Cells, written: Any) -> None:
    missing = np.asarray(written != cells.full)
    if not missing.any():
        return
    if run.mask is not None and not (missing & run.mask).any():
        return
    raise UnwrittenRead(
        f"{cells.name!r} {list(cells.shape)} is read by a lane that did not store it",
        hint="store it first; after a parallel loop, a value that lanes disagree on is gone",
    )


def store_lane_cell(facts: BufferFacts, indices: list[Evaluate], value: Evaluate) -> Perform:
    """The closure of a store into lane memory."""
    cells = Cells(facts)

    def perform(run: Run) -> None:
        memory: LaneMemory = run.memories[cells.memory]
        stored, mask = value(run), run.mask
        cell = cells.number(run, indices)
        lanes = memory.raw.shape[:-1]
        shapes = [part.shape for part in (stored, cell, mask) if isinstance(part, np.ndarray)]
        if any(shape != lanes for shape in shapes):
            wanted = np.broadcast_shapes(lanes, *shapes)
            if wanted != lanes:
                memory.widen(wanted)
        data, marks = memory.raw.view(cells.dtype), memory.written.view(cells.marks)
        if isinstance(cell, np.ndarray):
            scatter(data, marks, cells.full, cell, stored, mask)
        elif mask is None:
            data[..., cell] = stored
            if not memory.complete:
                marks[..., cell] = cells.full
                memory.complete = cells.dtype.itemsize == memory.size_bytes
        else:
            np.copyto(data[..., cell], stored, where=mask, casting="unsafe")
            if not memory.complete:
                np.copyto(marks[..., cell], cells.full, where=mask, casting="unsafe")

    return perform


def scatter(data: Any, marks: Any, full: int, cell: Any, stored: Any, mask: Any) -> None:
    lanes = data.shape[:-1]
    where = np.ones(lanes, bool) if mask is None else np.broadcast_to(mask, lanes)
    place = (*np.nonzero(where), np.broadcast_to(cell, lanes)[where])
    data[place] = np.broadcast_to(np.asarray(stored, data.dtype), lanes)[where]
    marks[place] = full
