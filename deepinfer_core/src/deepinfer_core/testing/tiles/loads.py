"""How is a load of the tile language translated?

The choice between a strided window and index arrays is made here, once for each load; a window that
would leave the buffer falls back to index arrays, which know the lanes one by one.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from deepinfer_core.testing.tiles import accesses, formats
from deepinfer_core.testing.tiles.affine import Affine, decompose
from deepinfer_core.testing.tiles.faults import UnknownTileOperation
from deepinfer_core.testing.tiles.lane_accesses import load_lane_cell
from deepinfer_core.testing.tiles.memory import View
from deepinfer_core.testing.tiles.registers import load_register
from deepinfer_core.testing.tiles.run import Run
from deepinfer_core.testing.tiles.scope import Evaluate, Scope

__all__ = ["Places", "translate_indices", "translate_load"]

Translate = Callable[[Scope, Any], Evaluate]


class Places:
    """Translated indices of one access.

    Attributes:
        evaluate: the indices in full, one closure a dimension.
        window: the affine form, or None when an index is not affine.
        bases: the affine form without its lane steps, one closure a dimension.
    """

    __slots__ = ("bases", "evaluate", "window")

    def __init__(
        self,
        evaluate: list[Evaluate],
        window: accesses.Window | None,
        bases: list[Evaluate],
    ) -> None:
        self.evaluate, self.window, self.bases = evaluate, window, bases

    def placed(self, run: Run, view: View) -> tuple[int, list[int], list[int]] | None:
        """The strided window of this access, if it has one and stays inside."""
        if self.window is None:
            return None
        bases = []
        for base in self.bases:
            value = base(run)
            if isinstance(value, np.ndarray):
                return None
            bases.append(int(value))
        return self.window.place(run, view, bases)

    def cells(self, run: Run, view: View) -> Any:
        """Flat cell numbers, checked."""
        return accesses.cell_numbers(run, view, [index(run) for index in self.evaluate])


def translate_indices(scope: Scope, indices: Any, translate: Translate) -> Places:
    """Translate the indices of one access both ways."""
    evaluate = [translate(scope, index) for index in indices]
    parts = [decompose(index, scope) for index in indices]
    affine = [part for part in parts if part is not None]
    if len(affine) < len(parts):
        return Places(evaluate, None, [])
    window = accesses.Window([part.steps for part in affine])
    bases = [
        whole if not part.steps else base_of(scope, part, translate)
        for whole, part in zip(evaluate, affine, strict=True)
    ]
    return Places(evaluate, window, bases)


def base_of(scope: Scope, part: Affine, translate: Translate) -> Evaluate:
    constant = part.constant
    rest = [(factor, translate(scope, node)) for factor, node in part.rest]
    if not rest:
        return lambda run: constant
    if len(rest) == 1:
        factor, only = rest[0]
        return lambda run: constant + factor * only(run)

    def evaluate(run: Run) -> Any:
        return constant + sum(factor * term(run) for factor, term in rest)

    return evaluate


def translate_load(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    """The closure of a load from any memory."""
    if node.predicate is not None:
        raise UnknownTileOperation("BufferLoad", "a load with a predicate")
    places = translate_indices(scope, node.indices, translate)
    facts = scope.buffer(node.buffer)
    python_int = formats.is_python_int(str(node.dtype))
    if facts.allocation.per_lane and formats.is_register(str(node.buffer.dtype)):
        return load_register(facts, places.evaluate)
    if facts.allocation.per_lane:
        return load_lane_cell(facts, places.evaluate, python_int=python_int)
    slot = facts.slot

    def evaluate(run: Run) -> Any:
        view: View = run.views[slot]
        placed = places.placed(run, view)
        if placed is None:
            value = accesses.load_cells(run, view, places.cells(run, view))
        else:
            value = load_window(run, view, placed)
        if isinstance(value, np.ndarray) and value.ndim:
            return value
        return int(value) if python_int else value[()]

    return evaluate


def load_window(run: Run, view: View, placed: tuple[int, list[int], list[int]]) -> Any:
    offset, shape, strides = placed
    if not shape:
        return accesses.load_cells(run, view, view.offset + offset)
    if not view.memory.complete:
        marks = view.written_window(offset, shape, strides)
        if (marks != view.full).any():
            accesses.check_written(run, view, marks)
    return view.window(offset, shape, strides)
