"""What do the two-operand nodes of the tile language compute?

Operands have one format; so has the result, except for comparisons. Uniform integers of the index
formats are Python integers and are wrapped at their width; everything else is numpy in that format.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from deepinfer_core.testing.tiles import formats
from deepinfer_core.testing.tiles.run import Run
from deepinfer_core.testing.tiles.scope import Evaluate

__all__ = ["PAIRS", "truncated_quotient", "truncated_remainder"]

Pair = Callable[[Any, Any], Any]


def exact(compute: Pair) -> Callable[[Evaluate, Evaluate, str], Evaluate]:
    """A node whose result cannot leave the operands' range."""

    def build(left: Evaluate, right: Evaluate, name: str) -> Evaluate:
        def evaluate(run: Run) -> Any:
            return compute(left(run), right(run))

        return evaluate

    return build


def wrapping(compute: Pair) -> Callable[[Evaluate, Evaluate, str], Evaluate]:
    """A node whose result wraps at the width of its format."""

    def build(left: Evaluate, right: Evaluate, name: str) -> Evaluate:
        if not formats.is_python_int(name):
            return exact(compute)(left, right, name)
        half = 1 << (formats.PYTHON_INTS[name] - 1)

        def evaluate(run: Run) -> Any:
            result = compute(left(run), right(run))
            if type(result) is int and not -half <= result < half:
                return formats.wrap(result, name)
            return result

        return evaluate

    return build


def truncated_quotient(left: Any, right: Any) -> Any:
    """C's integer division: towards zero; by zero gives zero, which no taking lane may use."""
    if isinstance(left, int) and isinstance(right, int):
        if right == 0:
            return 0
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    if np.result_type(left, right).kind == "u":
        return np.floor_divide(left, right)
    return (left - np.fmod(left, right)) // right


def truncated_remainder(left: Any, right: Any) -> Any:
    """C's ``%``: the sign of the dividend."""
    if isinstance(left, int) and isinstance(right, int):
        return left - truncated_quotient(left, right) * right if right else 0
    return np.fmod(left, right)


def quotient(left: Evaluate, right: Evaluate, name: str) -> Evaluate:
    if formats.numpy_dtype(name).kind in "iu":
        return wrapping(truncated_quotient)(left, right, name)
    return exact(np.divide)(left, right, name)


def floored(compute: Pair) -> Pair:
    def safe(left: Any, right: Any) -> Any:
        if isinstance(right, int) and right == 0 and isinstance(left, int):
            return 0
        return compute(left, right)

    return safe


def smaller(left: Any, right: Any) -> Any:
    if type(left) is int and type(right) is int:
        return min(left, right)
    return np.fmin(left, right)


def larger(left: Any, right: Any) -> Any:
    if type(left) is int and type(right) is int:
        return max(left, right)
    return np.fmax(left, right)


PAIRS: dict[str, Callable[[Evaluate, Evaluate, str], Evaluate]] = {
    "Add": wrapping(lambda a, b: a + b),
    "Sub": wrapping(lambda a, b: a - b),
    "Mul": wrapping(lambda a, b: a * b),
    "Div": quotient,
    "Mod": exact(truncated_remainder),
    "FloorDiv": exact(floored(lambda a, b: a // b)),
    "FloorMod": exact(floored(lambda a, b: a % b)),
    "Min": exact(smaller),
    "Max": exact(larger),
    "EQ": exact(lambda a, b: a == b),
    "NE": exact(lambda a, b: a != b),
    "LT": exact(lambda a, b: a < b),
    "LE": exact(lambda a, b: a <= b),
    "GT": exact(lambda a, b: a > b),
    "GE": exact(lambda a, b: a >= b),
}
