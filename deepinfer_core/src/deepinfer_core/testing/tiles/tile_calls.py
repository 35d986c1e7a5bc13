"""What does a call that stands as a statement do?

Tile operations work on whole regions. Barriers, fences and hints do nothing: the interpreter does
one thing after the other.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from deepinfer_core.testing.tiles import formats
from deepinfer_core.testing.tiles.atomics import translate_atomic, translate_update
from deepinfer_core.testing.tiles.faults import FailedAssertion, UnknownTileOperation
from deepinfer_core.testing.tiles.lane_tiles import copy_lanes, differs, fill_lanes
from deepinfer_core.testing.tiles.regions import Region
from deepinfer_core.testing.tiles.requests import translate_request
from deepinfer_core.testing.tiles.roles import BARRIERS
from deepinfer_core.testing.tiles.run import Run
from deepinfer_core.testing.tiles.scope import Evaluate, Perform, Scope
from deepinfer_core.testing.tiles.simd import PREFIX, translate_simd
from deepinfer_core.testing.tiles.tile_math import MATH, identity

__all__ = ["translate_call"]

Translate = Callable[[Scope, Any], Evaluate]

HINTS = {
    "tirx.tvm_storage_sync", "tl.sync_warp", "tl.sync_grid", "tl.fence_proxy_async",
    "tl.set_max_nreg", "tl.no_set_max_nreg", "tl.annotate_producer_reg_dealloc",
    "tl.annotate_consumer_reg_alloc", "tl.pdl_sync", "tl.pdl_trigger", "tl.warpgroup_arrive",
    "tl.warpgroup_commit_batch", "tl.warpgroup_wait", "tl.wait_wgmma",
    "tl.warpgroup_fence_operand", "tl.tma_store_arrive", "tl.tma_store_wait",
    "tl.named_barrier_arrive", "tirx.assume",
}  # fmt: skip


def translate_call(scope: Scope, node: Any, translate: Translate) -> Perform:
    """The closure of a call whose value nobody uses.

    Raises:
        UnknownTileOperation: the operation has no meaning here.
    """
    name = str(node.op.name)
    if name in HINTS or is_print(node):
        return nothing
    if name in TILES:
        return TILES[name](scope, node, translate)
    if name in BARRIERS:
        return BARRIERS[name](scope, node, translate)
    if name in MATH:
        return MATH[name](scope, node, translate)
    if name.startswith(("tl.atomic_", PREFIX)):
        atomic = name.startswith("tl.atomic_")
        update = (translate_atomic if atomic else translate_simd)(scope, node, translate)

        def perform(run: Run) -> None:
            update(run)

        return perform
    raise UnknownTileOperation(name)


def is_print(node: Any) -> bool:
    return len(node.args) > 0 and str(getattr(node.args[0], "value", "")).startswith("debug_print")


def check(scope: Scope, node: Any, translate: Translate) -> Perform:
    """An assertion of the kernel itself."""
    condition = translate(scope, node.args[0])
    message = str(node.args[1].value) if len(node.args) > 1 else ""

    def perform(run: Run) -> None:
        holds = np.asarray(condition(run))
        if run.mask is not None:
            holds = holds | ~run.mask
        if not holds.all():
            raise FailedAssertion(f"an assertion of the tile program does not hold: {message}")

    return perform


def nothing(run: Run) -> None:
    """Order and placement only."""


def fill(scope: Scope, node: Any, translate: Translate) -> Perform:
    region, value = Region(scope, node.args[0], translate), translate(scope, node.args[1])
    if region.per_lane:
        return fill_lanes(scope, region.facts, value)

    def perform(run: Run) -> None:
        region.write(run, formats.cast(value(run), region.dtype))

    return perform


def copy(scope: Scope, node: Any, translate: Translate) -> Perform:
    if differs(scope, node.args[0]) or differs(scope, node.args[1]):
        return copy_lanes(scope, node, translate)
    source, target = Region(scope, node.args[0], translate), Region(scope, node.args[1], translate)

    def perform(run: Run) -> None:
        values = formats.cast(source.read(run), target.dtype)
        extents = [extent(run) for extent in target.extents]
        target.write(run, reshaped(values, extents))

    return perform


def ascend_copy(scope: Scope, node: Any, translate: Translate) -> Perform:
    """A copy with Ascend's choices: turned, or split between the vector cores."""
    notes = node.annotations or {}
    if "data_select" in notes or "sub_blockid" in notes:
        raise UnknownTileOperation("ascend_copy", "with data_select or sub_blockid")
    source, target = Region(scope, node.args[0], translate), Region(scope, node.args[1], translate)
    split, turned = int(notes.get("dual_dst_ctl", 0)), bool(notes.get("transpose", 0))
    whole = (target if notes.get("double") else source) if split else None
    axis = len(whole.starts) - (2 if split == 1 else 1) if whole is not None else 0

    def perform(run: Run) -> None:
        if whole is not None:
            whole.part = (axis, run.core)
        values = formats.cast(source.read(run), target.dtype)
        if turned:
            values = np.ascontiguousarray(values.swapaxes(-1, -2))
        target.write(run, reshaped(values, target.place(run)[2]))

    return perform


def reshaped(values: Any, extents: list[int]) -> Any:
    """``values`` in the target's shape; only dimensions of one element may come or go."""
    wide = [extent for extent in values.shape if extent != 1]
    if wide != [extent for extent in extents if extent != 1]:
        raise UnknownTileOperation("copy", f"from extents {list(values.shape)} to {extents}")
    return values.reshape(extents)


def transpose(scope: Scope, node: Any, translate: Translate) -> Perform:
    source, target = Region(scope, node.args[0], translate), Region(scope, node.args[1], translate)

    def perform(run: Run) -> None:
        target.write(run, np.array(formats.cast(source.read(run), target.dtype).swapaxes(-1, -2)))

    return perform


def begin_reducer(scope: Scope, node: Any, translate: Translate) -> Perform:
    region = Region(scope, node.args[0], translate)
    kind = scope.kinds.get(region.facts.node.data, "sum")
    first = translate(scope, node.args[1]) if len(node.args) > 1 else None
    start = identity(kind, region.dtype)

    def perform(run: Run) -> None:
        region.write(run, start if first is None else formats.cast(first(run), region.dtype))

    return perform


def leave_loop(scope: Scope, node: Any, translate: Translate) -> Perform:
    def perform(run: Run) -> None:
        if run.mask is None:
            run.stopped = True
        elif run.stopped is not True:
            run.stopped = run.mask if run.stopped is None else run.stopped | run.mask

    return perform


TILES: dict[str, Callable[[Scope, Any, Translate], Perform]] = {
    "tl.tileop.fill": fill,
    "tl.tileop.copy": copy,
    "tl.tileop.ascend_copy": ascend_copy,
    "tl.tileop.tma_copy": copy,
    "tl.tileop.async_copy": copy,
    "tl.tileop.transpose": transpose,
    "tl.tileop.reducer_init": begin_reducer,
    "tl.tileop.finalize_reducer_v2": copy,
    "tl.reducer_update": translate_update,
    "tl.loop_break": leave_loop,
    "tl.device_assert": check,
    "tl.device_assert_with_msg": check,
    "tirx.call_extern": translate_request,
}
