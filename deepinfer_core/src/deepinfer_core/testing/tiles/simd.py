"""How are the SIMD operations of Ascend's vector cores translated?

An operation is found by the name that follows ``tl.simd.``. A mask zeroes what it does not select,
or keeps what the assigned register held before.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepinfer_core.testing.tiles import formats
from deepinfer_core.testing.tiles.faults import UnknownTileOperation
from deepinfer_core.testing.tiles.registers import BYTES, chosen
from deepinfer_core.testing.tiles.run import Run
from deepinfer_core.testing.tiles.scope import Evaluate, Scope
from deepinfer_core.testing.tiles.simd_values import (
    COMPARE,
    ELEMENTWISE,
    REDUCE,
    convert,
    interleaved,
    separated,
)

__all__ = ["PREFIX", "translate_simd"]

Array = NDArray[Any]
Translate = Callable[[Scope, Any], Evaluate]
Builder = Callable[[Scope, Any, Translate], Evaluate]

PREFIX = "tl.simd."


def translate_simd(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    """The closure of a SIMD operation that has a value.

    Raises:
        UnknownTileOperation: the operation is not known.
    """
    from deepinfer_core.testing.tiles.simd_memory import MEMORY

    name = str(node.op.name).removeprefix(PREFIX)
    if name in MEMORY:
        return MEMORY[name](scope, node, translate)
    if name in BUILDERS:
        return BUILDERS[name](scope, node, translate)
    if name in ELEMENTWISE:
        return elementwise(scope, node, translate)
    if name in REDUCE:
        return reduction(scope, node, translate)
    raise UnknownTileOperation(str(node.op.name))


def words(node: Any) -> list[str]:
    """The constant words among an operation's arguments."""
    return [str(part.value) for part in node.args if type(part).__name__ == "StringImm"]


def operands(scope: Scope, node: Any, translate: Translate) -> list[Evaluate]:
    return [translate(scope, part) for part in node.args if type(part).__name__ != "StringImm"]


def dtype_of(node: Any) -> np.dtype[Any]:
    return formats.numpy_dtype(formats.element(str(node.dtype)))


def masked(run: Run, node: Any, result: Array, predicate: Array) -> Array:
    """The result where the predicate selects; zero, or the old content, elsewhere."""
    active = chosen(predicate, result.dtype.itemsize)
    if active.all():
        return result
    if "MODE_MERGING" in words(node):
        if run.merged is None:
            raise UnknownTileOperation(str(node.op.name), "MODE_MERGING without a register")
        return np.where(active, result, run.merged)
    return np.where(active, result, np.zeros((), result.dtype))


def elementwise(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    *values, mask = operands(scope, node, translate)
    compute, dtype = ELEMENTWISE[str(node.op.name).removeprefix(PREFIX)], dtype_of(node)

    def evaluate(run: Run) -> Any:
        arguments = [np.asarray(value(run), dtype) for value in values]
        return masked(run, node, np.asarray(compute(*arguments)).astype(dtype), mask(run))

    return evaluate


def reduction(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    value, mask = operands(scope, node, translate)
    reduce, dtype = REDUCE[str(node.op.name).removeprefix(PREFIX)], dtype_of(node)

    def evaluate(run: Run) -> Any:
        register = value(run)
        return reduce(register, chosen(mask(run), register.dtype.itemsize), dtype)

    return evaluate


def pattern(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    """``pset``: a constant predicate."""
    width, name = int(node.args[0].value) // 8, words(node)[0].removeprefix("PAT_")
    count = BYTES // width
    number = np.arange(count)
    if name.startswith("VL"):
        active = number < int(name[2:])
    elif name in ("M3", "M4"):
        active = number % int(name[1]) == 0
    elif name in ("ALL", "ALLF", "H", "Q"):
        active = number < {"ALL": count, "ALLF": 0, "H": count // 2, "Q": count // 4}[name]
    else:
        raise UnknownTileOperation("tl.simd.pset", name)
    predicate = spread(active, width)
    return lambda run: predicate


def spread(active: Array, width: int) -> Array:
    """A predicate whose bits stand at the first byte of each element."""
    predicate = np.zeros(BYTES, bool)
    predicate[::width] = active
    return predicate


def tail(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    count, width = translate(scope, node.args[0]), int(node.args[1].value) // 8
    numbers = np.arange(BYTES // width)
    return lambda run: spread(numbers < count(run), width)


def predicates(combine: Callable[..., Any]) -> Builder:
    def build(scope: Scope, node: Any, translate: Translate) -> Evaluate:
        parts = operands(scope, node, translate)
        return lambda run: combine(*[part(run) for part in parts])

    return build


def compare(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    left, right, mask = operands(scope, node, translate)
    test = COMPARE[words(node)[-1]]

    def evaluate(run: Run) -> Any:
        first = left(run)
        width = first.dtype.itemsize
        holds = test(first, np.asarray(right(run), first.dtype))
        return spread(holds & chosen(mask(run), width), width)

    return evaluate


def select(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    first, second, mask = operands(scope, node, translate)

    def evaluate(run: Run) -> Any:
        one = first(run)
        return np.where(chosen(mask(run), one.dtype.itemsize), one, second(run))

    return evaluate


def broadcast(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    """``vdup`` of a scalar, ``vdupv`` of the first or last element."""
    value, mask = operands(scope, node, translate)
    dtype, last = dtype_of(node), "POS_HIGHEST" in words(node)

    def evaluate(run: Run) -> Any:
        found = np.asarray(value(run))
        one = found[-1 if last else 0] if found.ndim else found
        full = np.full(BYTES // dtype.itemsize, np.asarray(one).astype(dtype), dtype)
        return masked(run, node, full, mask(run))

    return evaluate


def numbers(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    first, dtype = translate(scope, node.args[0]), dtype_of(node)
    step = -1 if "DEC_ORDER" in words(node) else 1
    count = np.arange(BYTES // dtype.itemsize)
    return lambda run: (first(run) + step * count).astype(dtype)


def conversion(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    value, mask = operands(scope, node, translate)
    target, notes = formats.element(str(node.dtype)), words(node)
    return lambda run: convert(value(run), mask(run), target, notes)


def pair_part(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    pair, number = translate(scope, node.args[0]), int(node.args[1].value)
    return lambda run: pair(run)[number]


def permuted(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    value, index = operands(scope, node, translate)

    def evaluate(run: Run) -> Any:
        register = value(run)
        return register[index(run).astype(np.intp) % len(register)]

    return evaluate


def packed(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    """``vpack``: the low half of each element, in one half of the register."""
    value, dtype, upper = translate(scope, node.args[0]), dtype_of(node), "HIGHER" in words(node)

    def evaluate(run: Run) -> Any:
        low = value(run).view(dtype)[0::2]
        rest = np.zeros(len(low), dtype)
        return np.concatenate([rest, low] if upper else [low, rest])

    return evaluate


def unpacked(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    """``vunpack``: one half of the register, each element widened."""
    value, dtype, upper = translate(scope, node.args[0]), dtype_of(node), "HIGHER" in words(node)

    def evaluate(run: Run) -> Any:
        register = value(run)
        half = len(register) // 2
        return (register[half:] if upper else register[:half]).astype(dtype)

    return evaluate


def earlier(scope: Scope, node: Any, translate: Translate) -> Evaluate:
    """``vusqz``: how many selected elements come before."""
    mask, dtype = translate(scope, node.args[0]), dtype_of(node)

    def evaluate(run: Run) -> Any:
        active = chosen(mask(run), dtype.itemsize).astype(dtype)
        return (np.cumsum(active) - active).astype(dtype)

    return evaluate


BUILDERS: dict[str, Builder] = {
    "pset": pattern,
    "pge": pattern,
    "update_mask": tail,
    "pand": predicates(lambda a, b, mask: a & b & mask),
    "por": predicates(lambda a, b, mask: (a | b) & mask),
    "pxor": predicates(lambda a, b, mask: (a ^ b) & mask),
    "pnot": predicates(lambda a, mask: ~a & mask),
    "psel": predicates(lambda a, b, mask: np.where(mask, a, b)),
    "vcmp": compare,
    "vcmps": compare,
    "vsel": select,
    "vdup": broadcast,
    "vdupv": broadcast,
    "vci": numbers,
    "vcvt": conversion,
    "vintlv": predicates(interleaved),
    "vdintlv": predicates(separated),
    "pair_get": pair_part,
    "vselr": permuted,
    "vpack": packed,
    "vunpack": unpacked,
    "vusqz": earlier,
}
