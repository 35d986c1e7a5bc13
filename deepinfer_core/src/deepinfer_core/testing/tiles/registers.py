"""What is in a SIMD register of a vector core, and how does it get there?

A register is 256 bytes: a numpy vector of one format. A predicate has one bit a byte; an element
looks at the bit of its first byte. Loads are not masked, so what lies beyond a buffer or was never
written comes in as poison (NaN, or a pattern of bits) and shows in the result.
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
from deepinfer_core.testing.tiles.scope import BufferFacts, Evaluate, Perform, Scope

__all__ = [
    "BYTES",
    "Place",
    "Registers",
    "chosen",
    "load_register",
    "poison",
    "read_elements",
    "store_register",
    "write_elements",
]

Array = NDArray[Any]
Translate = Callable[[Scope, Any], Evaluate]

BYTES = 256
POISON = 0xCD


class Registers:
    """The mutable registers of one allocation."""

    __slots__ = ("held", "name")

    def __init__(self, count: int, name: str) -> None:
        self.held: list[Array | None] = [None] * count
        self.name = name

    def forget(self) -> None:
        """Begin a new region: nothing is written."""
        self.held = [None] * len(self.held)


def chosen(predicate: Array, width: int) -> Array:
    """Which elements of ``width`` bytes a predicate selects."""
    bits: Array = predicate[::width]
    return bits


def load_register(facts: BufferFacts, indices: list[Evaluate]) -> Evaluate:
    """The closure that reads a register variable."""
    slot = facts.allocation.slot

    def evaluate(run: Run) -> Any:
        registers: Registers = run.memories[slot]
        held = registers.held[indices[-1](run)]
        if held is None:
            raise UnwrittenRead(f"register {registers.name!r} is read before it is assigned")
        return held

    return evaluate


def store_register(facts: BufferFacts, indices: list[Evaluate], value: Evaluate) -> Perform:
    """The closure that assigns a register variable; ``run.merged`` is what it held before."""
    slot = facts.allocation.slot

    def perform(run: Run) -> None:
        registers: Registers = run.memories[slot]
        number = indices[-1](run)
        run.merged = registers.held[number]
        registers.held[number] = np.array(value(run))
        run.merged = None

    return perform


class Place:
    """A translated ``tl.access_ptr``: the first element that an operation touches."""

    __slots__ = ("facts", "indices")

    def __init__(self, scope: Scope, node: Any, translate: Translate) -> None:
        if type(node).__name__ != "Call" or str(node.op.name) != "tl.access_ptr":
            raise UnknownTileOperation("simd", "an address that is not a buffer's element")
        load = node.args[0]
        self.facts = scope.buffer(load.buffer)
        self.indices = [translate(scope, index) for index in load.indices]

    def first(self, run: Run) -> tuple[View, int]:
        """The buffer and the flat number of the element."""
        view: View = run.views[self.facts.slot]
        numbers = [index(run) for index in self.indices]
        for dimension, (number, extent) in enumerate(zip(numbers, view.shape, strict=True)):
            if not 0 <= number < extent:
                raise IndexOutOfRange(
                    f"index {number} of dimension {dimension} of {view.name!r} "
                    f"{list(view.shape)} is outside 0..{extent - 1}"
                )
        steps = zip(numbers, view.strides, strict=True)
        return view, view.offset + sum(number * stride for number, stride in steps)


def read_elements(view: View, cells: Array) -> Array:
    """The elements of flat cells; poison where there is nothing."""
    count = view.memory.size_bytes // view.dtype.itemsize
    inside = (cells >= 0) & (cells < count)
    where = np.clip(cells, 0, max(count - 1, 0))
    values: Array = view.flat[where]
    if view.marks is not None and not view.memory.complete:
        inside = inside & (view.marks[where] == view.full)
    if not inside.all():
        values[~inside] = poison(view.dtype)
    return values


def poison(dtype: np.dtype[Any]) -> Any:
    """A value that no kernel means to use."""
    if dtype.kind not in "iub":
        return np.float32(np.nan).astype(dtype)
    return np.full(dtype.itemsize, POISON, np.uint8).view(dtype)[0]


def write_elements(view: View, cells: Array, values: Array) -> None:
    """Store elements into flat cells, as bits.

    Raises:
        IndexOutOfRange: a cell is beyond the buffer.
    """
    count = view.memory.size_bytes // view.dtype.itemsize
    if values.dtype.itemsize != view.dtype.itemsize:
        raise UnknownTileOperation("vsts", f"{values.dtype} into {view.name!r} of {view.dtype}")
    if cells.size and (cells.min() < 0 or cells.max() >= count):
        raise IndexOutOfRange(
            f"element {int(cells.max())} of {view.name!r} {list(view.shape)} is stored to",
            hint="narrow the mask of the store",
        )
    view.flat[cells] = np.ascontiguousarray(values).view(view.dtype)
    if view.marks is not None and not view.memory.complete:
        view.marks[cells] = view.full
