"""How does a tile operation work when each lane has its own region?

A thread may copy a piece of memory that depends on its index, or fill an array of its own. Values
then have the lanes first and the cells of the region after them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from deepinfer_core.testing.tiles import accesses, formats
from deepinfer_core.testing.tiles.faults import (
    IndexOutOfRange,
    UnknownTileOperation,
    UnwrittenRead,
)
from deepinfer_core.testing.tiles.memory import LaneMemory, all_bits
from deepinfer_core.testing.tiles.regions import Region
from deepinfer_core.testing.tiles.run import Run
from deepinfer_core.testing.tiles.scope import BufferFacts, Evaluate, Perform, Scope, walk

__all__ = ["copy_lanes", "differs", "fill_lanes"]

Translate = Callable[[Scope, Any], Evaluate]


def differs(scope: Scope, node: Any) -> bool:
    """Whether a region (a call) may differ between lanes."""
    load = node.args[0]
    if scope.buffer(load.buffer).allocation.per_lane:
        return True
    parts = [part for index in load.indices for part in walk(index)]
    loads = [part for part in parts if type(part).__name__ == "BufferLoad"]
    if any(scope.buffer(part.buffer).allocation.per_lane for part in loads):
        return True
    return any(scope.varies(index) for index in load.indices)


def fill_lanes(scope: Scope, facts: BufferFacts, value: Evaluate) -> Perform:
    """The closure that stores one value into every cell of a lane buffer."""
    name = str(facts.node.dtype)
    dtype = formats.numpy_dtype(name)
    slot = facts.allocation.slot
    scope.lane_stores.add(slot)

    def perform(run: Run) -> None:
        memory: LaneMemory = run.memories[slot]
        stored: Any = np.asarray(formats.cast(value(run), name))
        mask = widened(run, memory, stored.shape)
        np.copyto(memory.raw.view(dtype), stored[..., None], where=mask, casting="unsafe")
        np.copyto(memory.written, 1, where=mask, casting="unsafe")

    return perform


def widened(run: Run, memory: LaneMemory, lanes: tuple[int, ...]) -> Any:
    """Make room for more lanes; the mask with an axis for the cells."""
    mask = np.ones((), bool) if run.mask is None else run.mask
    wanted = np.broadcast_shapes(memory.raw.shape[:-1], lanes, mask.shape)
    if wanted != memory.raw.shape[:-1]:
        memory.widen(wanted)
    return mask[..., None]


def copy_lanes(scope: Scope, node: Any, translate: Translate) -> Perform:
    """The closure of a copy in which the source or the target belongs to a lane."""
    source, target = Region(scope, node.args[0], translate), Region(scope, node.args[1], translate)
    if target.per_lane:
        scope.lane_stores.add(target.facts.allocation.slot)

    def perform(run: Run) -> None:
        values = read_own(run, source) if source.per_lane else read_shared(run, source)
        values = formats.cast(np.asarray(values), target.dtype)
        if target.per_lane:
            write_own(run, target, values)
        else:
            write_shared(run, target, values)

    return perform


def span(run: Run, region: Region) -> slice:
    """The cells of a region of lane memory, which must be one piece."""
    starts = [start(run) for start in region.starts]
    extents = [extent(run) for extent in region.extents]
    whole = [int(extent) for extent in region.facts.node.shape]
    if len(starts) > 1 and extents != whole:
        raise UnknownTileOperation("copy", "a part of a thread's own array of several dimensions")
    first, count = starts[-1] if len(starts) == 1 else 0, int(np.prod(extents))
    if isinstance(first, np.ndarray) or first < 0 or first + count > int(np.prod(whole)):
        name = region.facts.allocation.name
        raise IndexOutOfRange(f"cells {first} and {count - 1} more of {name!r} {whole}")
    return slice(first, first + count)


def read_own(run: Run, region: Region) -> Any:
    """The cells of lane memory, along the last axis."""
    memory: LaneMemory = run.memories[region.facts.allocation.slot]
    dtype, piece = formats.numpy_dtype(region.dtype), span(run, region)
    ratio = dtype.itemsize // memory.granule_bytes
    missing = memory.written.view(f"u{ratio}")[..., piece] != all_bits(ratio)
    if run.mask is not None:
        missing = missing & run.mask[..., None]
    if missing.any():
        raise UnwrittenRead(f"a copy reads {memory.name!r}, which a lane did not store")
    return memory.raw.view(dtype)[..., piece]


def write_own(run: Run, region: Region, values: Any) -> None:
    memory: LaneMemory = run.memories[region.facts.allocation.slot]
    mask = widened(run, memory, values.shape[:-1])
    dtype, piece = formats.numpy_dtype(region.dtype), span(run, region)
    ratio = dtype.itemsize // memory.granule_bytes
    marks = memory.written.view(f"u{ratio}")[..., piece]
    np.copyto(memory.raw.view(dtype)[..., piece], values, where=mask, casting="unsafe")
    np.copyto(marks, all_bits(ratio), where=mask, casting="unsafe")


def places(run: Run, region: Region) -> tuple[Any, Any]:
    """Flat cells of each lane's region, and which of them take part and exist."""
    view = region.view(run)
    extents = [extent(run) for extent in region.extents]
    inside = np.ones((1,), bool) if run.mask is None else np.asarray(run.mask)[..., None]
    steps = np.indices(extents).reshape(len(extents), -1)
    numbers: list[Any] = []
    for axis, start in enumerate(region.starts):
        number = np.asarray(start(run), np.intp)[..., None] + steps[axis]
        if region.is_global:
            inside = inside & (number >= 0) & (number < view.shape[axis])
        numbers.append(number)
    outer, run.mask = run.mask, inside
    cells = accesses.cell_numbers(run, view, numbers)
    run.mask = outer
    shape = np.broadcast_shapes(np.shape(cells), inside.shape)
    return np.broadcast_to(cells, shape), np.broadcast_to(inside, shape)


def read_shared(run: Run, region: Region) -> Any:
    """Each lane's cells of shared or global memory; zeros where global memory ends."""
    view = region.view(run)
    cells, inside = places(run, region)
    outer, run.mask = run.mask, inside
    values = np.where(inside, accesses.load_cells(run, view, cells), np.zeros((), view.dtype))
    run.mask = outer
    return values


def write_shared(run: Run, region: Region, values: Any) -> None:
    cells, inside = places(run, region)
    outer, run.mask = run.mask, inside
    accesses.store_cells(run, region.view(run), cells, values)
    run.mask = outer
