"""What do operations between the lanes of a warp compute?

A twin is a numpy function registered under the operation's own name. It sees each argument as an
array whose last axis is the 32 lanes of a warp, and returns an array of that shape.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepinfer_core.testing.tiles.faults import UnknownTileOperation

__all__ = [
    "Function",
    "Twin",
    "exchange",
    "find",
    "find_function",
    "register_function",
    "register_twin",
]

Array = NDArray[Any]
Twin = Callable[..., Array]
Function = Callable[..., Any]

WARP = 32
TWINS: dict[str, Twin] = {}
FUNCTIONS: dict[str, Function] = {}


def register_twin(name: str) -> Callable[[Twin], Twin]:
    """Decorator: the function computes operation ``name`` (as the IR spells it) for whole warps."""

    def register(twin: Twin) -> Twin:
        TWINS[name] = twin
        return twin

    return register


def register_function(name: str) -> Callable[[Function], Function]:
    """Decorator: the function computes device function ``name`` elementwise, on whole lanes."""

    def register(function: Function) -> Function:
        FUNCTIONS[name] = function
        return function

    return register


def find_function(name: str) -> Function | None:
    """The numpy form of a device function that kernels call by name, or None."""
    return FUNCTIONS.get(name)


def find(name: str) -> Twin | None:
    """The twin of an operation, or None."""
    return TWINS.get(name)


def exchange(twin: Twin, width: int, values: list[Any]) -> Array:
    """Apply a twin to lane values whose last axis is ``width`` threads."""
    if width % WARP:
        raise UnknownTileOperation(twin.__name__, f"{width} threads are not whole warps")
    shape = np.broadcast_shapes((width,), *(np.shape(value) for value in values))
    warps = (*shape[:-1], width // WARP, WARP)
    full = [np.broadcast_to(np.asarray(value), shape).reshape(warps) for value in values]
    return np.broadcast_to(twin(*full), warps).reshape(shape)


def gather(value: Array, lane: Array) -> Array:
    """The value of another lane; outside the segment a lane keeps its own."""
    return np.take_along_axis(value, lane, -1)


def segment(width: Array) -> tuple[Array, Array]:
    lanes = np.broadcast_to(np.arange(WARP), width.shape)
    return lanes, lanes // width * width


@register_twin("tl.shfl_sync")
def shfl_sync(mask: Array, value: Array, lane: Array, width: Array) -> Array:
    _, first = segment(width)
    return gather(value, first + lane % width)


@register_twin("tl.shfl_xor_sync")
def shfl_xor_sync(mask: Array, value: Array, bits: Array, width: Array) -> Array:
    lanes, first = segment(width)
    other = lanes ^ bits
    return gather(value, np.where(other < first + width, other, lanes))


@register_twin("tl.shfl_down_sync")
def shfl_down_sync(mask: Array, value: Array, delta: Array, width: Array) -> Array:
    lanes, first = segment(width)
    other = lanes + delta
    return gather(value, np.where(other < first + width, other, lanes))


@register_twin("tl.shfl_up_sync")
def shfl_up_sync(mask: Array, value: Array, delta: Array, width: Array) -> Array:
    lanes, first = segment(width)
    other = lanes - delta
    return gather(value, np.where(other >= first, other, lanes))


@register_twin("tl.warp_reduce_sum")
def warp_reduce_sum(value: Array) -> Array:
    step = WARP // 2
    while step:
        value = value + gather(value, np.broadcast_to(np.arange(WARP) ^ step, value.shape))
        step //= 2
    return value


@register_twin("tl.warp_reduce_max")
def warp_reduce_max(value: Array) -> Array:
    return np.fmax.reduce(value, axis=-1, keepdims=True)


@register_twin("tl.warp_reduce_min")
def warp_reduce_min(value: Array) -> Array:
    return np.fmin.reduce(value, axis=-1, keepdims=True)


@register_twin("tl.warp_reduce_bitand")
def warp_reduce_bitand(value: Array) -> Array:
    return np.bitwise_and.reduce(value, axis=-1, keepdims=True)


@register_twin("tl.warp_reduce_bitor")
def warp_reduce_bitor(value: Array) -> Array:
    return np.bitwise_or.reduce(value, axis=-1, keepdims=True)


def bits_of(predicate: Array) -> Array:
    weights = np.uint32(1) << np.arange(WARP, dtype=np.uint32)
    chosen = np.where(predicate != 0, weights, np.uint32(0))
    return np.asarray(np.sum(chosen, -1, np.uint32, keepdims=True))


@register_twin("tl.ballot_sync")
def ballot_sync(mask: Array, predicate: Array) -> Array:
    return bits_of(predicate) & mask


@register_twin("tl.ballot")
def ballot(predicate: Array) -> Array:
    return bits_of(predicate)


@register_twin("tl.any_sync")
def any_sync(mask: Array, predicate: Array) -> Array:
    return np.asarray((predicate != 0).any(-1, keepdims=True))


@register_twin("tl.all_sync")
def all_sync(mask: Array, predicate: Array) -> Array:
    return np.asarray((predicate != 0).all(-1, keepdims=True))


@register_twin("tl.match_any_sync")
def match_any_sync(mask: Array, value: Array) -> Array:
    equal = value[..., :, None] == value[..., None, :]
    return bits_of(equal)[..., 0] & mask
