"""How do the loops of the tile language run?

A parallel loop is an axis of lanes; which thread takes which iteration is the compiler's choice, so
a condition on the thread index around the loop does not divide it. All other loops are serial:
pipelining, unrolling and vectorising change when work is done, not what is computed. A serial loop
whose bounds differ between lanes runs to the largest of them under a mask.
"""

from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np

from deepinfer_core.testing.tiles.affine import Affine
from deepinfer_core.testing.tiles.faults import EndlessLoop, UnknownTileOperation
from deepinfer_core.testing.tiles.memory import LaneMemory
from deepinfer_core.testing.tiles.run import Run, both, without
from deepinfer_core.testing.tiles.scope import Evaluate, Perform, Scope

__all__ = ["translate_for", "translate_while"]

Translate = Callable[[Scope, Any], Evaluate]
Statement = Callable[[Scope, Any], Perform]

PARALLEL, THREAD_BINDING = 1, 4
MOST_TURNS = 1_000_000


def translate_for(scope: Scope, node: Any, translate: Translate, statement: Statement) -> Perform:
    """The closure of a for loop of any kind."""
    kind = int(node.kind)
    tag = str(node.thread_binding.thread_tag) if node.thread_binding is not None else ""
    if kind == PARALLEL:
        return parallel(scope, node, translate, statement)
    if kind == THREAD_BINDING and not tag.startswith("blockIdx"):
        raise UnknownTileOperation(tag or "thread_binding", "a loop bound to this index")
    return serial(scope, node, translate, statement)


def depth(node: Any) -> int:
    """How many parallel loops are nested inside a statement, at most."""
    kind = type(node).__name__
    if kind == "SeqStmt":
        return max(depth(part) for part in node.seq)
    if kind == "IfThenElse":
        other = node.else_case
        return max(depth(node.then_case), depth(other) if other is not None else 0)
    if kind == "SBlockRealize":
        return depth(node.block.body)
    if kind == "For":
        return depth(node.body) + (int(node.kind) == PARALLEL)
    return depth(node.body) if hasattr(node, "body") else 0


def parallel(scope: Scope, node: Any, translate: Translate, statement: Statement) -> Perform:
    first, extent = translate(scope, node.min), translate(scope, node.extent)
    outer_axis, outermost = scope.next_axis, scope.next_axis == scope.base_axes
    if outermost:
        scope.lane_stores.clear()
        scope.next_axis += depth(node)
    scope.next_axis -= 1
    axis = scope.next_axis
    scope.axes = max(scope.axes, axis + 1)
    facts = Affine(int(node.min.value), {axis: 1}) if type(node.min).__name__ == "IntImm" else None
    slot = scope.define(node.loop_var, facts)
    scope.live.append(axis)
    body = statement(scope, node.body)
    scope.live.pop()
    scope.next_axis += 1
    if outermost:
        scope.next_axis = outer_axis
    stored = sorted(scope.lane_stores) if outermost else []

    def perform(run: Run) -> None:
        count = extent(run)
        if isinstance(count, np.ndarray):
            raise UnknownTileOperation("parallel", "an extent that differs between lanes")
        if count <= 0:
            return
        outer = run.mask
        if outermost:
            run.mask = None
        run.extents[axis] = count
        start = first(run)
        lanes = run.lane_numbers(axis, count)
        run.values[slot] = lanes + start if not isinstance(start, int) or start else lanes
        body(run)
        run.mask = outer
        for memory in stored:
            held: LaneMemory = run.memories[memory]
            held.narrow(outer_axis)

    return perform


def serial(scope: Scope, node: Any, translate: Translate, statement: Statement) -> Perform:
    first, extent = translate(scope, node.min), translate(scope, node.extent)
    step = 1 if node.step is None else int(node.step)
    varies = scope.varies(node.min)
    slot = scope.define(node.loop_var, None if varies else "uniform")
    body = statement(scope, node.body)

    def perform(run: Run) -> None:
        start, count = first(run), extent(run)
        outer, left = run.mask, run.stopped
        run.stopped = None
        most = int(count.max(initial=0)) if isinstance(count, np.ndarray) else count
        for turn in range(0, most, step):
            if not begin_turn(run, outer, turn < count):
                break
            run.values[slot] = start + turn
            body(run)
        run.mask, run.stopped = outer, left

    return perform


def begin_turn(run: Run, outer: Any, going: Any) -> bool:
    """Set the mask of one iteration: lanes that neither stopped nor came to their end."""
    if run.stopped is True:
        return False
    if process_time() > run.deadline_s:
        raise EndlessLoop("the program did not end within the time that it was given")
    mask = outer if run.stopped is None else without(outer, run.stopped)
    if isinstance(going, np.ndarray):
        mask = both(mask, going)
    run.mask = mask
    return mask is None or bool(mask.any())


def translate_while(scope: Scope, node: Any, translate: Translate, statement: Statement) -> Perform:
    """The closure of a while loop; lanes leave it one by one."""
    condition, body = translate(scope, node.condition), statement(scope, node.body)

    def perform(run: Run) -> None:
        outer, left = run.mask, run.stopped
        run.stopped = None
        for _ in range(MOST_TURNS):
            if not begin_turn(run, outer, True):
                break
            going = condition(run)
            if isinstance(going, np.ndarray):
                run.mask = both(run.mask, going)
                going = run.mask.any()
            if not going:
                break
            body(run)
        else:
            raise EndlessLoop(f"a while loop ran {MOST_TURNS:,} turns without an end")
        run.mask, run.stopped = outer, left

    return perform
