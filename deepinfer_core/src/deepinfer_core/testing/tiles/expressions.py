"""What is the value of an expression of the tile language, for all lanes at once?

Every node becomes one closure over the closures of its parts. A condition that differs between
lanes makes a mask: both sides are evaluated, and a load on one side checks only the lanes that
take that side.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from deepinfer_core.testing.tiles import arithmetic, formats, vectors
from deepinfer_core.testing.tiles.atomics import translate_atomic
from deepinfer_core.testing.tiles.faults import UnknownTileOperation
from deepinfer_core.testing.tiles.loads import translate_load
from deepinfer_core.testing.tiles.operations import find_operation
from deepinfer_core.testing.tiles.run import Run, both, without
from deepinfer_core.testing.tiles.scope import Evaluate, Scope
from deepinfer_core.testing.tiles.simd import PREFIX, translate_simd

__all__ = ["choose", "translate"]


def translate(scope: Scope, node: Any) -> Evaluate:
    """The closure that evaluates an expression.

    Raises:
        UnknownTileOperation: the expression has no array meaning here.
    """
    kind = type(node).__name__
    build = BUILDERS.get(kind)
    if build is not None:
        return build(scope, node)
    pair = arithmetic.PAIRS.get(kind)
    if pair is None:
        raise UnknownTileOperation(kind)
    return pair(translate(scope, node.a), translate(scope, node.b), str(node.a.dtype))


def constant(value: Any) -> Evaluate:
    def evaluate(run: Run) -> Any:
        return value

    return evaluate


def integer(scope: Scope, node: Any) -> Evaluate:
    name = str(node.dtype)
    if formats.is_python_int(name):
        return constant(int(node.value))
    if name == "bool":
        return constant(bool(node.value))
    return constant(formats.numpy_dtype(name).type(int(node.value)))


def floating(scope: Scope, node: Any) -> Evaluate:
    return constant(formats.cast(np.float64(node.value), str(node.dtype)))


def variable(scope: Scope, node: Any) -> Evaluate:
    if node in scope.later:
        return translate(scope, scope.later[node])
    if node not in scope.variables:
        raise UnknownTileOperation(str(node.name), "a variable that nothing binds")
    slot = scope.variables[node]

    def evaluate(run: Run) -> Any:
        return run.values[slot]

    return evaluate


def convert(scope: Scope, node: Any) -> Evaluate:
    inner, target, source = translate(scope, node.value), str(node.dtype), str(node.value.dtype)
    if target == source or (source == "int32" and target == "int64"):
        plain = formats.numpy_dtype(target)

        def widen(run: Run) -> Any:
            value = inner(run)
            return value.astype(plain, copy=False) if isinstance(value, np.ndarray) else value

        return widen
    formats.numpy_dtype(target)

    def evaluate(run: Run) -> Any:
        return formats.cast(inner(run), target)

    return evaluate


def conjunction(scope: Scope, node: Any) -> Evaluate:
    left, right = translate(scope, node.a), translate(scope, node.b)

    def evaluate(run: Run) -> Any:
        first = left(run)
        if not isinstance(first, np.ndarray):
            return right(run) if first else False
        outer = run.mask
        run.mask = both(outer, first)
        second = right(run)
        run.mask = outer
        return first & second

    return evaluate


def disjunction(scope: Scope, node: Any) -> Evaluate:
    left, right = translate(scope, node.a), translate(scope, node.b)

    def evaluate(run: Run) -> Any:
        first = left(run)
        if not isinstance(first, np.ndarray):
            return True if first else right(run)
        outer = run.mask
        run.mask = without(outer, first)
        second = right(run)
        run.mask = outer
        return first | second

    return evaluate


def negation(scope: Scope, node: Any) -> Evaluate:
    inner = translate(scope, node.a)

    def evaluate(run: Run) -> Any:
        value = inner(run)
        return ~value if isinstance(value, np.ndarray) else not value

    return evaluate


def select(scope: Scope, node: Any) -> Evaluate:
    condition = translate(scope, node.condition)
    chosen, other = translate(scope, node.true_value), translate(scope, node.false_value)
    return choose(condition, chosen, other, str(node.dtype), lazy=False)


def choose(
    condition: Evaluate, chosen: Evaluate, other: Evaluate, name: str, *, lazy: bool = True
) -> Evaluate:
    """One of two values a lane; lazily, each side is evaluated under its own mask."""
    dtype = formats.numpy_dtype(name)

    def evaluate(run: Run) -> Any:
        test = condition(run)
        if not isinstance(test, np.ndarray):
            return (chosen if test else other)(run)
        outer = run.mask
        if lazy:
            run.mask = both(outer, test)
        first = chosen(run)
        if lazy:
            run.mask = without(outer, test)
        second = other(run)
        run.mask = outer
        return np.where(test, np.asarray(first, dtype), np.asarray(second, dtype))

    return evaluate


def binding(scope: Scope, node: Any) -> Evaluate:
    value, slot = translate(scope, node.value), scope.define(node.var, None)
    body = translate(scope, node.body)

    def evaluate(run: Run) -> Any:
        run.values[slot] = value(run)
        return body(run)

    return evaluate


def call(scope: Scope, node: Any) -> Evaluate:
    name = str(node.op.name)
    if name == "tirx.if_then_else":
        parts = [translate(scope, part) for part in node.args]
        return choose(parts[0], parts[1], parts[2], str(node.dtype))
    if name.startswith(PREFIX):
        return translate_simd(scope, node, translate)
    if name.startswith("tl.atomic_"):
        return translate_atomic(scope, node, translate)
    return find_operation(name)(scope, node, translate)


BUILDERS: dict[str, Callable[[Scope, Any], Evaluate]] = {
    "IntImm": integer,
    "FloatImm": floating,
    "Var": variable,
    "Cast": convert,
    "And": conjunction,
    "Or": disjunction,
    "Not": negation,
    "Select": select,
    "Let": binding,
    "Call": call,
    "BufferLoad": lambda scope, node: translate_load(scope, node, translate),
    "ThreadOrigin": lambda scope, node: lambda run: run.origins[node.axis],
    "Ramp": lambda scope, node: vectors.ramp(scope, node, translate),
    "Broadcast": lambda scope, node: vectors.broadcast(scope, node, translate),
    "Shuffle": lambda scope, node: vectors.shuffle(scope, node, translate),
}
