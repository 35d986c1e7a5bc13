"""How is a store of the tile language translated?

A value that fits the lanes of an affine index goes straight into the strided window; everything
else goes cell by cell, where disagreeing lanes are found.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from deepinfer_core.testing.tiles import accesses, formats
from deepinfer_core.testing.tiles.faults import DoubledStore, UnknownTileOperation
from deepinfer_core.testing.tiles.lane_accesses import store_lane_cell
from deepinfer_core.testing.tiles.loads import Places, translate_indices
from deepinfer_core.testing.tiles.memory import View
from deepinfer_core.testing.tiles.registers import store_register
from deepinfer_core.testing.tiles.run import Run
from deepinfer_core.testing.tiles.scope import Evaluate, Perform, Scope

__all__ = ["store_value", "translate_store"]

Translate = Callable[[Scope, Any], Evaluate]


def translate_store(scope: Scope, node: Any, translate: Translate) -> Perform:
    """The closure of a store into any memory."""
    if node.predicate is not None:
        raise UnknownTileOperation("BufferStore", "a store with a predicate")
    places = translate_indices(scope, node.indices, translate)
    value = translate(scope, node.value)
    facts = scope.buffer(node.buffer)
    if facts.allocation.per_lane and formats.is_register(str(node.buffer.dtype)):
        return store_register(facts, places.evaluate, value)
    if facts.allocation.per_lane:
        scope.lane_stores.add(facts.allocation.slot)
        return store_lane_cell(facts, places.evaluate, value)
    slot, is_common = facts.slot, str(node.buffer.scope()).startswith(("global", "shared"))

    def perform(run: Run) -> None:
        must_be_lone = is_common and run.threads > 0
        store_value(run, run.views[slot], places, value(run), must_be_lone=must_be_lone)

    return perform


def store_value(
    run: Run, view: View, places: Places, value: Any, *, must_be_lone: bool = False
) -> None:
    """Store lane values at translated indices, for lanes that take part.

    Lanes that differ in their cells, as those of a window do, are lone anyway.
    """
    placed = places.placed(run, view)
    if placed is None or not store_window(run, view, places, placed, value):
        cells = places.cells(run, view)
        if must_be_lone:
            check_lone(run, view, cells, value)
        accesses.store_cells(run, view, cells, value)


def check_lone(run: Run, view: View, cells: Any, stored: Any) -> None:
    """Raise if several lanes would store into one cell."""
    lanes = [x for x in (cells, stored, run.mask) if isinstance(x, np.ndarray)]
    if not lanes:
        count, distinct = run.threads, 1
    else:
        shape = np.broadcast_shapes(*(x.shape for x in lanes))
        taken = np.broadcast_to(cells, shape)
        if run.mask is not None:
            taken = taken[np.broadcast_to(run.mask, shape)]
        count, distinct = taken.size, np.unique(taken).size
    if count > distinct:
        raise DoubledStore(
            f"{count} lanes of one statement store into {distinct} cells of {view.name!r}",
            hint="let one lane store, or use an atomic operation",
        )


def fits(value: Any, shape: list[int]) -> bool:
    """Whether lane values need no axis beyond those of the window."""
    if not isinstance(value, np.ndarray):
        return True
    if value.ndim > len(shape):
        return False
    return all(
        have in (1, want) for have, want in zip(value.shape[::-1], shape[::-1], strict=False)
    )


def store_window(
    run: Run, view: View, places: Places, placed: tuple[int, list[int], list[int]], value: Any
) -> bool:
    """Store through the window; false when only the lane-by-lane way is right."""
    offset, shape, strides = placed
    mask, window = run.mask, places.window
    assert window is not None
    if not shape or not fits(value, shape) or not fits(mask, shape):
        return False
    if not window.one_to_one(shape, strides):
        return False
    cells = view.window(offset, shape, strides)
    if mask is None:
        cells[...] = value
    else:
        np.copyto(cells, value, where=mask, casting="unsafe")
    if not view.memory.complete:
        mark_window(view, placed, mask)
    return True


def mark_window(view: View, placed: tuple[int, list[int], list[int]], mask: Any) -> None:
    offset, shape, strides = placed
    marks = view.written_window(offset, shape, strides)
    if mask is None:
        marks[...] = view.full
        if marks.size * view.dtype.itemsize == view.memory.size_bytes:
            view.memory.complete = True
    else:
        np.copyto(marks, view.full, where=mask, casting="unsafe")
