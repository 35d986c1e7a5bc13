"""What do the tile operations that compute something compute?

Products widen their operands to the accumulator's kind and add in float32 (integers exactly).
Reductions of sums run in float32 or wider; maxima ignore NaN, as the device's ``max`` does.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepinfer_core.testing.tiles import formats
from deepinfer_core.testing.tiles.faults import UnknownTileOperation
from deepinfer_core.testing.tiles.regions import Region
from deepinfer_core.testing.tiles.run import Run
from deepinfer_core.testing.tiles.scope import Evaluate, Perform, Scope

__all__ = ["COMBINE", "MATH", "identity"]

Array = NDArray[Any]
Translate = Callable[[Scope, Any], Evaluate]

COMBINE: dict[str, Any] = {
    "sum": np.add, "abssum": np.add, "max": np.fmax, "min": np.fmin, "absmax": np.fmax,
    "bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor,
}  # fmt: skip


def identity(kind: str, name: str) -> Any:
    """The value with which a reduction starts."""
    dtype = formats.numpy_dtype(name)
    if kind in ("sum", "abssum", "absmax", "bitor", "bitxor"):
        return dtype.type(0)
    if kind == "bitand":
        return dtype.type(1) if dtype.kind == "b" else np.invert(np.zeros((), dtype))[()]
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return dtype.type(limits.min if kind == "max" else limits.max)
    return dtype.type(-np.inf if kind == "max" else np.inf)


def accumulator(name: str) -> Any:
    """The numpy dtype in which a format is added up."""
    dtype = formats.numpy_dtype(name)
    if dtype.kind in "iub" or dtype == np.float64:
        return dtype
    return np.dtype(np.float32)


def gemm(scope: Scope, node: Any, translate: Translate) -> Perform:
    """``C (+)= A @ B`` with both operands optionally transposed."""
    left, right, out = (Region(scope, part, translate) for part in node.args[:3])
    flip_left, flip_right = bool(node.args[3]), bool(node.args[4])
    clear = translate(scope, node.args[9])
    if left.per_lane or right.per_lane or out.per_lane:
        raise UnknownTileOperation("gemm", "an operand in per-thread memory")
    wide = accumulator(out.dtype)

    def perform(run: Run) -> None:
        a, b = matrix(left.read(run), wide), matrix(right.read(run), wide)
        product = multiply(a.T if flip_left else a, b.T if flip_right else b)
        shape = [extent(run) for extent in out.extents]
        product = product.reshape(shape)
        if not clear(run):
            product = out.read(run).astype(wide) + product
        out.write(run, formats.cast(product, out.dtype))

    return perform


def matrix(values: Array, dtype: Any) -> Array:
    return values.reshape(values.shape[-2:]).astype(dtype)


def multiply(a: Array, b: Array) -> Array:
    if a.dtype.kind in "iu":
        return (a.astype(np.float64) @ b.astype(np.float64)).astype(a.dtype)
    return np.asarray(a @ b)


def reduce(scope: Scope, node: Any, translate: Translate) -> Perform:
    """Reduce one dimension of a region, optionally onto what the result holds."""
    source, out = Region(scope, node.args[0], translate), Region(scope, node.args[1], translate)
    kind, dimension, clear = str(node.args[2].value), int(node.args[3]), bool(node.args[4])
    wide, absolute = accumulator(out.dtype), kind in ("abssum", "absmax")

    def perform(run: Run) -> None:
        values = source.read(run)
        if kind in ("sum", "abssum") or absolute:
            values = values.astype(wide)
        if absolute:
            values = np.abs(values)
        total = COMBINE[kind].reduce(values, axis=dimension)
        total = np.asarray(total).reshape([extent(run) for extent in out.extents])
        if not clear:
            before = out.read(run).astype(total.dtype)
            total = COMBINE[kind](np.abs(before) if kind == "absmax" else before, total)
        out.write(run, formats.cast(total, out.dtype))

    return perform


def scan(accumulate: Any) -> Callable[[Scope, Any, Translate], Perform]:
    """A running sum or maximum along one dimension, from either end."""

    def build(scope: Scope, node: Any, translate: Translate) -> Perform:
        source, out = Region(scope, node.args[0], translate), Region(scope, node.args[1], translate)
        dimension, backwards = int(node.args[2]), bool(node.args[3])

        def perform(run: Run) -> None:
            values = source.read(run).astype(accumulator(out.dtype))
            if backwards:
                values = np.flip(values, dimension)
            running = accumulate(values, axis=dimension)
            if backwards:
                running = np.flip(running, dimension)
            out.write(run, formats.cast(np.ascontiguousarray(running), out.dtype))

        return perform

    return build


def atomic_region(combine: Any) -> Callable[[Scope, Any, Translate], Perform]:
    """Combine a region of values into a region of memory."""

    def build(scope: Scope, node: Any, translate: Translate) -> Perform:
        source, out = Region(scope, node.args[0], translate), Region(scope, node.args[1], translate)
        wide = accumulator(out.dtype)

        def perform(run: Run) -> None:
            shape = [extent(run) for extent in out.extents]
            values = source.read(run).astype(wide).reshape(shape)
            out.write(run, formats.cast(combine(out.read(run).astype(wide), values), out.dtype))

        return perform

    return build


MATH: dict[str, Callable[[Scope, Any, Translate], Perform]] = {
    "tl.tileop.gemm": gemm,
    "tl.tileop.wgmma_gemm": gemm,
    "tl.tileop.reduce": reduce,
    "tl.tileop.cumsum": scan(np.cumsum),
    "tl.tileop.cummax": scan(np.maximum.accumulate),
    "tl.tileop.atomicadd": atomic_region(np.add),
    "tl.tileop.atomicmax": atomic_region(np.fmax),
    "tl.tileop.atomicmin": atomic_region(np.fmin),
}
