"""Which named scalar operations does the interpreter know, and what does each one compute?

An operation is found by the name that the tile language gives it. Half-width floats are computed in
float32 and rounded once, as the device's instructions do.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from deepinfer_core.testing.tiles import formats, twins, vectors
from deepinfer_core.testing.tiles.faults import UnknownTileOperation
from deepinfer_core.testing.tiles.run import Run
from deepinfer_core.testing.tiles.scope import Evaluate, Scope

__all__ = ["find_operation"]

Translate = Callable[[Scope, Any], Evaluate]
Builder = Callable[[Scope, Any, Translate], Evaluate]


def find_operation(name: str) -> Builder:
    """How a call of operation ``name`` is translated.

    Raises:
        UnknownTileOperation: neither the interpreter nor a registered twin knows it.
    """
    if name in BUILDERS:
        return BUILDERS[name]
    if name in FUNCTIONS:
        return elementwise(FUNCTIONS[name])
    if twins.find(name) is not None:
        return lane_exchange
    raise UnknownTileOperation(name)


def elementwise(compute: Callable[..., Any]) -> Builder:
    """An operation on values of one format; narrow floats go through float32."""

    def build(scope: Scope, node: Any, translate: Translate) -> Evaluate:
        values = [part for part in node.args if type(part).__name__ != "StringImm"]
        parts = [translate(scope, part) for part in values]
        source, target = str(values[0].dtype), str(node.dtype)
        through = formats.numpy_dtype(source).kind not in "iubf" or source == "float16"

        def evaluate(run: Run) -> Any:
            arguments = [part(run) for part in parts]
            if through:
                arguments = [np.asarray(value, np.float32) for value in arguments]
            result = compute(*arguments)
            if isinstance(result, np.ndarray) and not result.ndim:
                result = result[()]
            return formats.cast(result, target)

        return evaluate

    return build


def lane_exchange(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    """A warp-level operation: its twin sees one row of 32 lanes a warp."""
    twin = twins.find(str(node.op.name))
    assert twin is not None
    parts = [translate(scope, part) for part in node.args if type(part).__name__ != "StringImm"]
    target = str(node.dtype)

    def evaluate(run: Run) -> Any:
        values = [part(run) for part in parts]
        return formats.cast(twins.exchange(twin, run.extents[0], values), target)

    return evaluate


def external(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    """A call of a device function by name: an elementwise numpy twin registered for it."""
    name = str(node.args[0].value)
    compute = twins.find_function(name)
    if compute is None:
        raise UnknownTileOperation(name, "a device function without a registered twin")
    return elementwise(compute)(scope, node, translate)


def infinity(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    value = formats.numpy_dtype(str(node.dtype)).type(np.inf)
    return lambda run: value


def reinterpretation(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    source, target = str(node.args[0].dtype), str(node.dtype)
    if formats.is_register(source) and formats.is_register(target):
        register, dtype = translate(scope, node.args[0]), formats.numpy_dtype(target)
        return lambda run: register(run).view(dtype)
    if formats.lanes_of(source) > 1 or formats.lanes_of(target) > 1:
        return vectors.repack(scope, node, translate)
    inner = translate(scope, node.args[0])
    return lambda run: formats.reinterpret(inner(run), source, target)


def shift(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    left, right = translate(scope, node.args[0]), translate(scope, node.args[1])
    name, leftwards = str(node.dtype), str(node.op.name) == "tirx.shift_left"

    def evaluate(run: Run) -> Any:
        value, count = left(run), right(run)
        result = value << count if leftwards else value >> count
        return formats.wrap(result, name) if type(result) is int else result

    return evaluate


def large_constant(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    """An unsigned constant of more than 63 bits, given by its lower and upper halves."""
    low, high = (int(part.value) for part in node.args)
    value = formats.cast((high << 32) | low, str(node.dtype))
    return lambda run: value


def passed_through(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    return translate(scope, node.args[0])


def half_away(value: Any) -> Any:
    return np.copysign(np.floor(np.abs(value) + 0.5), value)


def leading_zeros(value: Any) -> Any:
    array = np.atleast_1d(np.asarray(value))
    width = 32 if array.dtype.itemsize <= 4 else 64
    count = np.array([width - int(v & (2**width - 1)).bit_length() for v in array.ravel().tolist()])
    return count.reshape(np.shape(value))


def error_function(value: Any) -> Any:
    import torch

    return torch.erf(torch.from_numpy(np.array(value, np.float64))).numpy().astype(np.float32)


def first_set(value: Any) -> Any:
    array = np.asarray(value).astype(np.int64)
    lowest = array & -array
    return np.where(array == 0, 0, np.bitwise_count(lowest - 1) + 1)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{
        f"tirx.{name}": getattr(np, name)
        for name in ("exp", "exp2", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan",
                     "sinh", "cosh", "tanh", "floor", "ceil", "trunc", "isnan", "isinf", "isfinite",
                     "fabs", "bitwise_and", "bitwise_or", "bitwise_xor")
    },
    **{
        f"tl.__{name}": getattr(np, name)
        for name in ("exp", "log", "log2", "log10", "sin", "cos", "tan")
    },
    "tl.__exp10": lambda x: np.power(np.float32(10), x),
    "tirx.exp10": lambda x: np.power(np.float32(10), x),
    "tirx.abs": np.abs,
    "tirx.atan": np.arctan,
    "tirx.atan2": np.arctan2,
    "tirx.copysign": np.copysign,
    "tirx.erf": error_function,
    "tirx.fmod": np.fmod,
    "tirx.pow": np.power,
    "tl.pow_of_int": np.power,
    "tirx.round": np.rint,
    "tirx.nearbyint": np.rint,
    "tl.round_ties_away_from_zero": half_away,
    "tirx.rsqrt": lambda x: 1 / np.sqrt(x),
    "tirx.sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tirx.bitwise_not": np.bitwise_not,
    "tirx.popcount": np.bitwise_count,
    "tirx.clz": leading_zeros,
    "tl.__ffs": first_set,
    "tl.clamp": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "tl.fma": lambda x, y, z: (np.float64(x) * y + z),
    "tirx.fma": lambda x, y, z: (np.float64(x) * y + z),
    "tl.fmul": np.multiply,
    "tl.add2": np.add,
    "tl.sub2": np.subtract,
    "tl.mul2": np.multiply,
    "tl.fma2": lambda x, y, z: (np.float64(x) * y + z),
    "tl.max2": np.fmax,
    "tl.min2": np.fmin,
    "tl.abs2": np.abs,
    "tl.fast_rcp": lambda x: 1 / x,
    "tl.ieee_add": np.add,
    "tl.ieee_sub": np.subtract,
    "tl.ieee_mul": np.multiply,
    "tl.ieee_fdiv": np.divide,
    "tl.ieee_fmaf": lambda x, y, z: (np.float64(x) * y + z),
    "tl.ieee_frcp": lambda x: 1 / x,
    "tl.ieee_fsqrt": np.sqrt,
    "tl.ieee_frsqrt": lambda x: 1 / np.sqrt(x),
}  # fmt: skip

BUILDERS: dict[str, Builder] = {
    "tl.infinity": infinity,
    "tirx.large_uint_imm": large_constant,
    "tirx.reinterpret": reinterpretation,
    "tirx.shift_left": shift,
    "tirx.shift_right": shift,
    "tirx.likely": passed_through,
    "tl.__ldg": passed_through,
    "tirx.call_extern": external,
    "tirx.call_pure_extern": external,
}
