"""What do atomic operations and reducers leave in memory?

Every lane contributes once: each iteration of the enclosing parallel loops, or each thread of the
block outside of them. Lanes take their turn in the order of their number; sums of floats are
rounded once, so that the interpreter's order is not mistaken for the device's.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from deepinfer_core.testing.tiles import accesses, formats
from deepinfer_core.testing.tiles.faults import UnknownTileOperation
from deepinfer_core.testing.tiles.loads import Places, translate_indices
from deepinfer_core.testing.tiles.memory import View
from deepinfer_core.testing.tiles.run import Run
from deepinfer_core.testing.tiles.scope import Evaluate, Scope
from deepinfer_core.testing.tiles.tile_math import COMBINE

__all__ = ["translate_atomic", "translate_update"]

Translate = Callable[[Scope, Any], Evaluate]

ELEMENTS = {
    "tl.atomic_add_elem_op": "sum",
    "tl.atomic_add_ret_elem_op": "sum",
    "tl.atomic_max_elem_op": "max",
    "tl.atomic_max_ret_elem_op": "max",
    "tl.atomic_min_elem_op": "min",
    "tl.atomic_min_ret_elem_op": "min",
    "tl.atomic_or_elem_op": "bitor",
}


class Target:
    """The cell of each contributing lane."""

    __slots__ = ("axes", "places", "slot")

    def __init__(self, scope: Scope, load: Any, translate: Translate, axes: list[int]) -> None:
        facts = scope.buffer(load.buffer)
        if facts.allocation.per_lane:
            raise UnknownTileOperation("atomic", f"on per-thread memory {facts.allocation.name!r}")
        self.slot = facts.slot
        self.places: Places = translate_indices(scope, load.indices, translate)
        self.axes = axes

    def contributions(self, run: Run, value: Any) -> tuple[View, Any, Any, Any]:
        """The view, and for every lane its cell, its value and whether it takes part."""
        view: View = run.views[self.slot]
        cells = self.places.cells(run, view)
        lanes = [1] * (max(self.axes) + 1) if self.axes else []
        for axis in self.axes:
            lanes[len(lanes) - 1 - axis] = run.extents[axis]
        mask = True if run.mask is None else run.mask
        shape = np.broadcast_shapes(tuple(lanes), np.shape(cells), np.shape(value), np.shape(mask))
        value = np.asarray(value, view.dtype)
        spread = [np.broadcast_to(part, shape) for part in (cells, value, mask)]
        return view, spread[0], spread[1], spread[2]


def translate_update(scope: Scope, node: Any, translate: Translate) -> Callable[[Run], None]:
    """The closure of a contribution to a reducer."""
    target = Target(scope, node.args[0], translate, list(scope.live))
    value = translate(scope, node.args[1])
    kind = scope.kinds.get(node.args[0].buffer.data, "sum")

    def perform(run: Run) -> None:
        view, cells, values, mask = target.contributions(run, value(run))
        combine(run, view, kind, cells[mask], values[mask])

    return perform


def combine(run: Run, view: View, kind: str, cells: Any, values: Any) -> None:
    """Combine values into their cells, floats summed in float64 and rounded once."""
    if not cells.size:
        return
    check_ready(run, view, cells)
    if kind != "sum" or view.dtype.kind in "iub":
        COMBINE[kind].at(view.flat, cells, values)
        return
    touched, lane = np.unique(cells, return_inverse=True)
    sums = np.bincount(lane.ravel(), weights=values.astype(np.float64).ravel())
    before = view.flat[touched].astype(np.float64)
    view.flat[touched] = (before + sums).astype(view.dtype)


def check_ready(run: Run, view: View, cells: Any) -> None:
    if view.marks is not None and not view.memory.complete:
        outer, run.mask = run.mask, None
        accesses.check_written(run, view, view.marks[cells], cells)
        run.mask = outer


def translate_atomic(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    """The closure of an atomic operation on one element a lane; its value is the old content."""
    name = str(node.op.name)
    if name in ("tl.atomic_load_elem_op", "tl.atomic_store_elem_op"):
        return translate_access(scope, node, translate)
    kind = ELEMENTS.get(name)
    if kind is None:
        raise UnknownTileOperation(name)
    axes = list(scope.live) or [axis for axis, count in enumerate(scope.threads) if count > 1]
    target = Target(scope, node.args[0].args[0], translate, axes)
    value, returns = translate(scope, node.args[1]), "_ret_" in name

    def evaluate(run: Run) -> Any:
        view, cells, values, mask = target.contributions(run, value(run))
        if returns:
            return one_by_one(run, view, kind, (cells, values, mask))
        combine(run, view, kind, cells[mask], values[mask])
        return None

    return evaluate


def one_by_one(run: Run, view: View, kind: str, lanes: tuple[Any, Any, Any]) -> Any:
    """Each lane in turn: what it found, before it changed it."""
    cells, values, mask = lanes
    check_ready(run, view, cells[mask])
    found = np.zeros(cells.shape, view.dtype)
    for lane in zip(*np.nonzero(mask), strict=True) if cells.ndim else [()]:
        cell = cells[lane]
        found[lane] = view.flat[cell]
        view.flat[cell] = COMBINE[kind](view.flat[cell], values[lane])
    if found.ndim:
        return found
    return int(found) if formats.is_python_int(str(view.dtype)) else found[()]


def translate_access(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    load = node.args[0].args[0]
    if str(node.op.name) == "tl.atomic_load_elem_op":
        return translate(scope, load)
    target = Target(scope, load, translate, [])
    value = translate(scope, node.args[1])

    def evaluate(run: Run) -> Any:
        view: View = run.views[target.slot]
        accesses.store_cells(run, view, target.places.cells(run, view), value(run))
        return None

    return evaluate
