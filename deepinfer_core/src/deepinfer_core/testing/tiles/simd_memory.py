"""How do SIMD operations move registers between a Unified Buffer and the vector core?

A load's distribution says how elements in memory become elements of the register, a store's how the
register's elements are packed; only selected elements are stored.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepinfer_core.testing.tiles import formats
from deepinfer_core.testing.tiles.faults import UnknownTileOperation
from deepinfer_core.testing.tiles.registers import (
    BYTES,
    Place,
    Registers,
    chosen,
    read_elements,
    write_elements,
)
from deepinfer_core.testing.tiles.run import Run
from deepinfer_core.testing.tiles.scope import Evaluate, Scope
from deepinfer_core.testing.tiles.simd_values import separated

__all__ = ["MEMORY"]

Array = NDArray[Any]
Translate = Callable[[Scope, Any], Evaluate]


def load(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    """``vld``."""
    place, dist = Place(scope, node.args[0], translate), str(node.args[1].value)
    dtype = formats.numpy_dtype(formats.element(str(node.dtype)))
    if len(node.args) > 2:
        raise UnknownTileOperation("tl.simd.vld", "with a pointer that moves on")
    spread, empty = distribution(dist, BYTES // dtype.itemsize, 32 // dtype.itemsize)

    def evaluate(run: Run) -> Any:
        view, first = place.first(run)
        if view.dtype.itemsize != dtype.itemsize:
            raise UnknownTileOperation("tl.simd.vld", f"{dist} of {view.dtype}")
        values = read_elements(view, first + spread).view(dtype)
        if empty is not None:
            values[empty] = np.zeros((), dtype)
        return values

    return evaluate


def distribution(dist: str, count: int, block: int) -> tuple[Array, Array | None]:
    """For each element of the register, its place in memory; and which elements are zero."""
    number = np.arange(count)
    kind = dist.partition("_")[0]
    if kind == "NORM":
        return number, None
    if kind == "BRC":
        return number * 0, None
    if kind in ("US", "DS"):
        return (number // 2 if kind == "US" else number * 2), None
    if kind in ("UNPK", "UNPK4"):
        step = 2 if kind == "UNPK" else 4
        return number // step, number % step != 0
    if kind == "BLK":
        return number % block, None
    if kind == "E2B":
        return number // block, None
    raise UnknownTileOperation("tl.simd.vld", dist)


def load_two(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    """``vld2``: even and odd elements."""
    place = Place(scope, node.args[0], translate)
    dtype = formats.numpy_dtype(formats.element(str(node.dtype)))
    count = BYTES // dtype.itemsize

    def evaluate(run: Run) -> Any:
        view, first = place.first(run)
        values = read_elements(view, first + np.arange(2 * count)).view(dtype)
        return separated(values[:count], values[count:])

    return evaluate


def store(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    """``vsts``."""
    place, value = Place(scope, node.args[0], translate), translate(scope, node.args[1])
    mask, dist = translate(scope, node.args[2]), str(node.args[3].value)
    kind = dist.partition("_")[0]
    if kind not in ("NORM", "ONEPT", "PK", "PK4"):
        raise UnknownTileOperation("tl.simd.vsts", dist)

    def evaluate(run: Run) -> Any:
        view, first = place.first(run)
        register = value(run)
        active = chosen(mask(run), register.dtype.itemsize)
        if kind == "ONEPT":
            active = active & (np.arange(len(register)) == 0)
        elements = narrowed(register, {"PK": 2, "PK4": 4}.get(kind, 1))
        number = np.flatnonzero(active)
        write_elements(view, first + number, elements[number])

    return evaluate


def narrowed(register: Array, ratio: int) -> Array:
    """The low part of each element."""
    if ratio == 1:
        return register
    width = register.dtype.itemsize // ratio
    return np.ascontiguousarray(register).view(f"u{width}")[::ratio]


def gather(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    """``vgather2``: an element for each index; elements that the mask leaves out are zero."""
    place, index = Place(scope, node.args[0], translate), translate(scope, node.args[1])
    mask, dtype = translate(scope, node.args[2]), formats.element(str(node.dtype))

    def evaluate(run: Run) -> Any:
        view, first = place.first(run)
        offsets = index(run).astype(np.intp)
        count = BYTES // formats.numpy_dtype(dtype).itemsize
        active = chosen(mask(run), BYTES // count)[:count]
        values = formats.cast_array(read_elements(view, first + offsets[:count]), dtype)
        return np.where(active, values, np.zeros((), values.dtype))

    return evaluate


def scatter(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    """``vscatter``: each selected element to its index."""
    value, place = translate(scope, node.args[0]), Place(scope, node.args[1], translate)
    index, mask = translate(scope, node.args[2]), translate(scope, node.args[3])

    def evaluate(run: Run) -> Any:
        view, first = place.first(run)
        register = value(run)
        number = np.flatnonzero(chosen(mask(run), register.dtype.itemsize))
        write_elements(view, first + index(run).astype(np.intp)[number], register[number])

    return evaluate


def accumulate(combine: Callable[[Array, Any, Any], Any]) -> Any:
    """An operation that changes a register: ``dst`` and two operands to ``dst``."""

    def build(scope: Scope, node: Any, translate: Translate) -> Evaluate:
        target = node.args[0].args[0]
        slot, number = (
            scope.buffer(target.buffer).allocation.slot,
            translate(scope, target.indices[-1]),
        )
        first, second, mask = (translate(scope, part) for part in node.args[1:4])
        merging = str(node.args[4].value) == "MODE_MERGING"

        def evaluate(run: Run) -> Any:
            registers: Registers = run.memories[slot]
            held = registers.held[number(run)]
            if held is None:
                raise UnknownTileOperation(str(node.op.name), "on a register without a value")
            result = np.asarray(combine(held, first(run), second(run))).astype(held.dtype)
            active = chosen(mask(run), held.dtype.itemsize)
            rest = held if merging else np.zeros((), held.dtype)
            registers.held[number(run)] = np.where(active, result, rest)

        return evaluate

    return build


def barrier(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    return lambda run: None


def fused(left: Any, right: Any, term: Any) -> Any:
    """A product and a sum with one rounding of float32."""
    return np.asarray(left, np.float64) * right + term


MEMORY: dict[str, Callable[[Scope, Any, Translate], Evaluate]] = {
    "vld": load,
    "vld2": load_two,
    "vsts": store,
    "vgather2": gather,
    "vscatter": scatter,
    "vmula": accumulate(lambda dst, a, b: fused(a, b, dst)),
    "vmadd": accumulate(fused),
    "vaxpy": accumulate(lambda dst, a, b: fused(a, b, dst)),
    "mem_bar": barrier,
}
