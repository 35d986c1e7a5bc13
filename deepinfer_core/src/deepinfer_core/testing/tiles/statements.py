"""What does a statement of the tile language do, for all lanes at once?

Block indices and serial, unrolled, vectorised and pipelined loops run one iteration after the
other; parallel loops and thread indices are lanes. A condition that differs between lanes is a
mask.
"""

from collections.abc import Callable
from itertools import groupby
from typing import Any

import numpy as np

from deepinfer_core.testing.tiles import formats
from deepinfer_core.testing.tiles.affine import Affine, ThreadOrigin, decompose
from deepinfer_core.testing.tiles.blocks import translate_block
from deepinfer_core.testing.tiles.cores import each_core, thread_extent, touches_core_memory
from deepinfer_core.testing.tiles.expressions import translate
from deepinfer_core.testing.tiles.faults import UnknownTileOperation
from deepinfer_core.testing.tiles.loops import translate_for, translate_while
from deepinfer_core.testing.tiles.roles import Role, is_role, together
from deepinfer_core.testing.tiles.run import Run, any_lane, both, without
from deepinfer_core.testing.tiles.scope import Perform, Scope, walk
from deepinfer_core.testing.tiles.stores import translate_store
from deepinfer_core.testing.tiles.tile_calls import translate_call

__all__ = ["translate_statement"]


def translate_statement(scope: Scope, node: Any) -> Perform:
    """The closure that performs a statement.

    Raises:
        UnknownTileOperation: the statement has no array meaning here.
    """
    kind = type(node).__name__
    build = BUILDERS.get(kind)
    if build is None:
        raise UnknownTileOperation(kind, "a statement")
    return build(scope, node)


def sequence(scope: Scope, node: Any) -> Perform:
    steps: list[Perform] = []
    for is_group, parts in groupby(node.seq, key=is_role):
        made = list(parts)
        if is_group:
            steps.append(together([role(scope, part) for part in made]))
        else:
            steps += [translate_statement(scope, part) for part in made]

    def perform(run: Run) -> None:
        for step in steps:
            step(run)
            if run.stopped is not None and leave(run):
                return

    return perform


def role(scope: Scope, node: Any) -> Role:
    if node.else_case is not None:
        raise UnknownTileOperation("ws", "a warp group with an else branch")
    return Role(translate(scope, node.condition), translate_statement(scope, node.then_case))


def leave(run: Run) -> bool:
    """After a break: take the lanes that left out of the mask; true when none remains."""
    if run.stopped is True:
        return True
    run.mask = without(run.mask, run.stopped)
    return not any_lane(run.mask)


def branch(scope: Scope, node: Any) -> Perform:
    condition = translate(scope, node.condition)
    chosen = translate_statement(scope, node.then_case)
    other = translate_statement(scope, node.else_case) if node.else_case is not None else None

    def perform(run: Run) -> None:
        test = condition(run)
        if not isinstance(test, np.ndarray):
            if test:
                chosen(run)
            elif other is not None:
                other(run)
            return
        outer = run.mask
        run.mask = both(outer, test)
        if run.mask.any():
            chosen(run)
        if other is not None:
            run.mask = without(outer, test)
            if run.mask.any():
                other(run)
        run.mask = outer

    return perform


def bind(scope: Scope, node: Any) -> Perform:
    if not scope.known(node.value):
        scope.later[node.var] = node.value
        return nothing
    if is_thread_index(node.value):
        return bind_thread(scope, node)
    value = translate(scope, node.value)
    slot = scope.define(node.var, kept_facts(scope, node.value))

    def perform(run: Run) -> None:
        found = value(run)
        if isinstance(found, np.ndarray) and not found.flags.owndata:
            found = found.copy()
        run.values[slot] = found

    return perform


def kept_facts(scope: Scope, value: Any) -> Affine | str | None:
    """What a bound name is made of; a loaded value is opaque, since memory changes under it."""
    if not formats.is_python_int(str(value.dtype)):
        return None if scope.varies(value) else "uniform"
    facts = decompose(value, scope)
    if facts is None or not facts.steps:
        return None if facts is None else "uniform"
    pure = all(type(part).__name__ not in ("BufferLoad", "Call") for part in walk(value))
    return facts if pure else None


def is_thread_index(value: Any) -> bool:
    return type(value).__name__ == "Call" and str(value.op.name) == "tl.launch_thread_idx"


def bind_thread(scope: Scope, node: Any) -> Perform:
    axis = int(node.value.args[0])
    count = scope.threads[axis] if axis < len(scope.threads) else 1
    scope.bound_threads[node.var] = count
    if count == 1:
        slot = scope.define(node.var, Affine(0))
    else:
        slot = scope.define(node.var, Affine(0, {axis: 1}, [(1, ThreadOrigin(axis))]))

    def perform(run: Run) -> None:
        run.values[slot] = run.lane_numbers(axis, count) if count > 1 else 0

    return perform


def nothing(run: Run) -> None:
    """A statement that only guides the compiler."""


def attribute(scope: Scope, node: Any) -> Perform:
    if str(node.attr_key) == "thread_extent":
        return thread_extent(scope, node, translate_statement)
    return translate_statement(scope, node.body)


def evaluate(scope: Scope, node: Any) -> Perform:
    if type(node.value).__name__ != "Call":
        return nothing
    perform = translate_call(scope, node.value, translate)
    if scope.cores > 1 and not scope.in_region and touches_core_memory(scope, node):
        return each_core(scope, perform)
    return perform


def store(scope: Scope, node: Any) -> Perform:
    perform = translate_store(scope, node, translate)
    if scope.cores > 1 and not scope.in_region and touches_core_memory(scope, node):
        return each_core(scope, perform)
    return perform


BUILDERS: dict[str, Callable[[Scope, Any], Perform]] = {
    "SeqStmt": sequence,
    "IfThenElse": branch,
    "Bind": bind,
    "AttrStmt": attribute,
    "Evaluate": evaluate,
    "BufferStore": store,
    "For": lambda scope, node: translate_for(scope, node, translate, translate_statement),
    "While": lambda scope, node: translate_while(scope, node, translate, translate_statement),
    "SBlock": lambda scope, node: translate_block(scope, node, translate_statement),
    "SBlockRealize": lambda scope, node: translate_block(scope, node, translate_statement),
}
