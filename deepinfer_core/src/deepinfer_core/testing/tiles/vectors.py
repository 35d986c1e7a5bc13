"""What do values of several elements mean: ramps, broadcasts, packed pairs?

The elements of a vector are lanes of an axis of their own, the highest one. A ramp as an index
addresses one cell an element; reading two bfloat16 out of 32 bits makes such an axis, and reading
32 bits out of two of them ends it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepinfer_core.testing.tiles import formats
from deepinfer_core.testing.tiles.faults import UnknownTileOperation
from deepinfer_core.testing.tiles.run import Run
from deepinfer_core.testing.tiles.scope import Evaluate, Scope

__all__ = ["AXIS", "broadcast", "ramp", "repack", "shuffle"]

Array = NDArray[Any]
Translate = Callable[[Scope, Any], Evaluate]

AXIS = 9
"""The lane axis of vector elements: above any nest of loops."""


def along(values: Array) -> Array:
    """Elements along the first axis, moved to the vector axis above all lanes."""
    inner = values.shape[1:]
    return values.reshape(values.shape[0], *(1,) * (AXIS - len(inner)), *inner)


def ramp(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    """The numbers ``base, base + stride, ...``, one for each element."""
    base, stride, count = translate(scope, node.base), translate(scope, node.stride), node.lanes
    numbers = along(
        np.arange(int(count), dtype=formats.numpy_dtype(formats.element(str(node.dtype))))
    )
    return lambda run: base(run) + stride(run) * numbers


def broadcast(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    """One value for each element."""
    value = translate(scope, node.value)
    count, name = int(node.lanes), formats.element(str(node.dtype))

    def evaluate(run: Run) -> Any:
        one = np.asarray(value(run), formats.numpy_dtype(name))
        return along(np.broadcast_to(one, (count, *one.shape)))

    return evaluate


def shuffle(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    """Elements picked by constant number out of the elements of all operands."""
    parts = [translate(scope, part) for part in node.vectors]
    counts = [formats.lanes_of(str(part.dtype)) for part in node.vectors]
    numbers = [int(index) for index in node.indices]
    dtype = formats.numpy_dtype(formats.element(str(node.dtype)))

    def evaluate(run: Run) -> Any:
        elements: list[Any] = []
        for part, count in zip(parts, counts, strict=True):
            value = np.asarray(part(run), dtype)
            spread = split(value, count)
            elements += [spread[lane] for lane in range(count)]
        picked = [elements[number] for number in numbers]
        if len(picked) == 1:
            only = trimmed(picked[0])
            return only if only.ndim else formats.scalar(only[()], str(node.dtype))
        return along(np.stack(np.broadcast_arrays(*picked)))

    return evaluate


def split(value: Array, count: int) -> Array:
    """The elements of a vector along a new first axis."""
    if count == 1:
        return value[None]
    wide = (
        value if value.ndim > AXIS else value.reshape((1,) * (AXIS + 1 - value.ndim) + value.shape)
    )
    return np.broadcast_to(wide, (count, *wide.shape[1:]))


def trimmed(value: Array) -> Array:
    """Without leading lane axes of one lane."""
    while value.ndim and value.shape[0] == 1:
        value = value[0]
    return value


def repack(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    """The same bits as another number of elements of another width."""
    inner = translate(scope, node.args[0])
    source, target = str(node.args[0].dtype), str(node.dtype)
    before, after = formats.lanes_of(source), formats.lanes_of(target)
    origin, goal = (
        formats.numpy_dtype(formats.element(source)),
        formats.numpy_dtype(formats.element(target)),
    )
    if before * origin.itemsize != after * goal.itemsize:
        raise UnknownTileOperation("reinterpret", f"{source} to {target} changes the width")

    def evaluate(run: Run) -> Any:
        last = np.moveaxis(split(np.asarray(inner(run), origin), before), 0, -1)
        bits = np.moveaxis(np.ascontiguousarray(last).view(goal), -1, 0)
        if after > 1:
            return along(np.stack([trimmed(bits[lane]) for lane in range(after)]))
        only = trimmed(bits[0])
        return only if only.ndim else formats.scalar(only[()], target)

    return evaluate
