"""What happens when a block of a tile program begins?

On-chip memory is allocated once for a run and forgotten at the start of each block: what the last
block left there does not count as written.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from deepinfer_core.testing.tiles import formats
from deepinfer_core.testing.tiles.cores import VECTOR_CORES, CoreMemories, each_core
from deepinfer_core.testing.tiles.faults import UnknownTileOperation
from deepinfer_core.testing.tiles.formats import numpy_dtype
from deepinfer_core.testing.tiles.memory import LaneMemory, Memory, View
from deepinfer_core.testing.tiles.registers import Registers
from deepinfer_core.testing.tiles.run import Run
from deepinfer_core.testing.tiles.scope import Allocation, Perform, Scope

__all__ = ["note_block", "translate_block"]

Statement = Callable[[Scope, Any], Perform]

REGIONS = ("SIMT_VF", "SIMD_VF")
"""Blocks that run on the vector cores of an Ascend block."""


def translate_block(scope: Scope, node: Any, statement: Statement) -> Perform:
    """The closure of a block: fresh memory, then its statements."""
    block = node.block if type(node).__name__ == "SBlockRealize" else node
    if len(block.iter_vars) or len(block.match_buffers):
        raise UnknownTileOperation("SBlock", "a block with its own axes or matched buffers")
    made = []
    for buffer in block.alloc_buffers:
        width = numpy_dtype(str(buffer.dtype)).itemsize
        allocation = scope.allocate(buffer, scope.widths.get(buffer.data, width))
        extents = [int(extent) for extent in buffer.shape]
        allocation.registers = formats.is_register(str(buffer.dtype))
        made.append((allocation, int(np.prod(extents, dtype=np.int64)) * width))
        scope.buffer(buffer)
    outer, region = scope.in_region, str(block.name_hint) in REGIONS
    scope.in_region = outer or region
    body = statement(scope, block.body)
    scope.in_region = outer

    def perform(run: Run) -> None:
        run.barriers.clear()
        for allocation, size_bytes in made:
            prepare(run, allocation, size_bytes)
        body(run)

    return each_core(scope, perform) if region else perform


def note_block(scope: Scope, block: Any) -> None:
    """Learn the launch extents, reducers' operations, barriers' arrivals."""
    threads = block.annotations.get("tl.launch_threads")
    if threads is not None:
        scope.threads = tuple(int(count) for count in threads)
        used = max((axis + 1 for axis, n in enumerate(scope.threads) if n > 1), default=0)
        scope.base_axes = scope.next_axis = used
        scope.axes = max(scope.axes, used)
    for variable, counts in (block.annotations.get("barrier_init") or {}).items():
        scope.arrivals[variable] = [int(count) for count in counts]
    for variable, facts in (block.annotations.get("reducer_info_v2") or {}).items():
        scope.kinds[variable] = str(facts["op"])


def prepare(run: Run, allocation: Allocation, size_bytes: int) -> None:
    memory = run.memories[allocation.slot]
    if memory is not None:
        memory.forget()
        return
    name, granule = allocation.name, allocation.granule_bytes
    if allocation.registers:
        run.memories[allocation.slot] = Registers(size_bytes // granule, name)
        return
    if allocation.per_lane:
        zeroed = allocation.scope == "local.var"
        run.memories[allocation.slot] = LaneMemory(size_bytes, granule, name, zeroed=zeroed)
        return
    count = VECTOR_CORES if allocation.per_core else 1
    made = [Memory(size_bytes, granule, name) for _ in range(count)]
    views = [{slot: view_of(one, node) for slot, node in allocation.buffers} for one in made]
    run.memories[allocation.slot] = CoreMemories(made, views) if count > 1 else made[0]
    for slot, view in views[0].items():
        run.views[slot] = view


def view_of(memory: Memory, node: Any) -> View:
    shape = [int(extent) for extent in node.shape]
    strides = [int(stride) for stride in node.strides] or None
    view = View.over(memory, numpy_dtype(str(node.dtype)), shape, strides)
    view.name = str(node.name)
    return view
