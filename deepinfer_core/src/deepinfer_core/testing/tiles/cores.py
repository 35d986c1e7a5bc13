"""How do the cores of an Ascend block share the work of a tile program?

A block is one cube core and, when a program splits tiles with ``dual_copy``, two vector cores. Each
vector core has a Unified Buffer of its own: what touches it runs once for each core, everything
else once. A SIMT region has threads of its own number; a SIMD region has none.
"""

from collections.abc import Callable
from typing import Any

from deepinfer_core.testing.tiles.affine import Affine, ThreadOrigin
from deepinfer_core.testing.tiles.faults import UnknownTileOperation
from deepinfer_core.testing.tiles.memory import Memory, View
from deepinfer_core.testing.tiles.run import Run
from deepinfer_core.testing.tiles.scope import Perform, Scope, walk

__all__ = ["CoreMemories", "each_core", "is_split", "thread_extent", "touches_core_memory"]

Statement = Callable[[Scope, Any], Perform]
VECTOR_CORES = 2


class CoreMemories:
    """One allocation of the Unified Buffer, on every vector core.

    Args:
        memories: one a core.
        views: for each core, the views of this allocation by their number.
    """

    __slots__ = ("memories", "views")

    def __init__(self, memories: list[Memory], views: list[dict[int, View]]) -> None:
        self.memories, self.views = memories, views

    def forget(self) -> None:
        """Begin a new block on all cores."""
        for memory in self.memories:
            memory.forget()


def is_split(node: Any) -> bool:
    """Whether a call splits or joins a tile between the vector cores."""
    return type(node).__name__ == "Call" and "dual_dst_ctl" in (node.annotations or {})


def touches_core_memory(scope: Scope, node: Any) -> bool:
    """Whether a statement reads or writes a Unified Buffer."""
    expressions = [node.value] if type(node).__name__ == "Evaluate" else [node.value, *node.indices]
    buffers = [node.buffer] if type(node).__name__ == "BufferStore" else []
    for expression in expressions:
        buffers += [part.buffer for part in walk(expression) if type(part).__name__ == "BufferLoad"]
    return any(scope.buffer(buffer).allocation.per_core for buffer in buffers)


def each_core(scope: Scope, perform: Perform) -> Perform:
    """The closure that runs a statement on every vector core in turn."""
    if scope.cores == 1:
        return perform

    def on_each(run: Run) -> None:
        for core in range(VECTOR_CORES):
            switch(run, core)
            perform(run)
        switch(run, 0)

    return on_each


def switch(run: Run, core: int) -> None:
    run.core = core
    for memory in run.memories:
        if isinstance(memory, CoreMemories):
            for slot, view in memory.views[core].items():
                run.views[slot] = view


def thread_extent(scope: Scope, node: Any, statement: Statement) -> Perform:
    """The closure of a region that brings its own thread index."""
    tag, count = str(node.node.thread_tag), int(node.value)
    axes = {"threadIdx.x": 0, "threadIdx.y": 1, "threadIdx.z": 2}
    if tag not in axes:
        raise UnknownTileOperation(tag, "an index of this kind")
    axis = axes[tag]
    facts = Affine(0, {axis: 1}, [(1, ThreadOrigin(axis))]) if count > 1 else Affine(0)
    slot = scope.define(node.node.var, facts)
    outer = scope.threads
    counts = [*outer, 1, 1, 1][:3]
    counts[axis] = count
    scope.threads = tuple(counts)
    body = statement(scope, node.body)
    scope.threads = outer

    def perform(run: Run) -> None:
        run.extents[axis] = count
        run.values[slot] = run.lane_numbers(axis, count) if count > 1 else 0
        body(run)

    return perform
