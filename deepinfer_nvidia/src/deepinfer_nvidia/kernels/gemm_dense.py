"""Products of bf16 rows with bf16 weights. Twin: ``deepinfer_core.reference.gemm``.

One block a tile of rows and channels; it walks K from the start to the end, so that a row's bits
depend neither on the other rows nor on the tile.
"""

from dataclasses import dataclass
from typing import Any

import tilelang.language as T
from deepinfer_core.interfaces.operators.gemm import GemmDenseSpec

from deepinfer_nvidia.kernels.early_start import FEW_ROWS, let_next_start
from deepinfer_nvidia.kernels.nearer import BRING_NEARER, bring_nearer, bytes_of_line
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["Tuning", "build", "default_tuning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(KernelTuning):
    """How the work is cut.

    Attributes:
        rows: rows of a tile; a multiple of 64.
        channels: channels of a tile.
        depth: inputs of a step.
        stages: steps that are loaded ahead.
        panel: tiles of channels that run next to each other, so that they share rows in the L2.
        is_swapped: channels are the long side of the matrix instruction, rows the short one; for
            few rows.
        is_split_by_rows: warp groups divide the rows of a tile, not its channels.
    """

    rows: int
    channels: int
    depth: int = 64
    stages: int
    panel: int = 0
    is_swapped: bool = False
    is_split_by_rows: bool = False


def default_tuning(_spec: GemmDenseSpec) -> Tuning:
    """For a few rows; ``choice`` has what launches use for each number of rows."""
    return Tuning(rows=64, channels=64, depth=64, stages=4, is_swapped=True)


def build(spec: GemmDenseSpec, tuning: Tuning) -> Any:
    """Any number of rows."""
    rows = T.dynamic("rows")
    groups, out_width, in_width = spec.groups, spec.out_width, spec.in_width
    tile_rows, tile_channels = tuning.rows, tuning.channels
    tiles = -(-out_width // tile_channels)
    policy = T.GemmWarpPolicy.FullRow if tuning.is_split_by_rows else T.GemmWarpPolicy.Square
    total_shape = (tile_channels, tile_rows) if tuning.is_swapped else (tile_rows, tile_channels)
    ask, walk, store = _asker(spec, tuning), _walker(spec, tuning, policy), _writer(spec, tuning)

    @T.prim_func
    def gemm_dense(
        x_TGK: T.Tensor((rows, groups, in_width), "bfloat16"),
        weight_GNK: T.Tensor((groups, out_width, in_width), "bfloat16"),
        out_TGN: T.Tensor((rows, groups, out_width), spec.out_dtype),
    ) -> None:
        with T.Kernel(groups * tiles, T.ceildiv(rows, tile_rows), threads=tuning.threads) as (
            across,
            down,
        ):
            total = T.alloc_fragment(total_shape, "float32")
            if tuning.panel:
                T.use_swizzle(tuning.panel)
            place = (across // tiles, down * tile_rows, across % tiles * tile_channels)
            let_next_start(rows)
            if rows <= FEW_ROWS:
                ask(weight_GNK, place)
            T.pdl_sync()
            T.clear(total)
            walk(x_TGK, weight_GNK, total, place)
            store(total, out_TGN, place, rows)

    return gemm_dense


def _asker(spec: GemmDenseSpec, tuning: Tuning) -> Any:
    """Brings the first weights of a tile nearer: a channel a thread."""
    size = bytes_of_line(spec.in_width, spec.in_width)
    trips = -(-tuning.channels // tuning.threads) if size else 0

    @T.macro
    def ask(weight_GNK: T.Buffer, place: tuple[Any, Any, Any]) -> None:
        T.import_source(BRING_NEARER)
        group, _, channel = place
        for trip in T.unroll(trips):
            own = trip * tuning.threads + T.get_thread_binding()
            if own < tuning.channels and channel + own < spec.out_width:
                bring_nearer(weight_GNK[group, channel + own, 0], size)

    return ask


def _walker(spec: GemmDenseSpec, tuning: Tuning, policy: Any) -> Any:
    """Adds the products along K; a place is (group, first row, first channel)."""
    tile_rows, tile_channels, depth = tuning.rows, tuning.channels, tuning.depth

    @T.macro
    def walk(
        x_TGK: T.Buffer,
        weight_GNK: T.Buffer,
        total: T.Buffer,
        place: tuple[Any, Any, Any],
    ) -> None:
        x = T.alloc_shared((tile_rows, depth), "bfloat16")
        weight = T.alloc_shared((tile_channels, depth), "bfloat16")
        group, row, channel = place
        for step in T.Pipelined(T.ceildiv(spec.in_width, depth), num_stages=tuning.stages):
            start = step * depth
            T.copy(x_TGK[row : row + tile_rows, group, start : start + depth], x)
            T.copy(
                weight_GNK[group, channel : channel + tile_channels, start : start + depth], weight
            )
            if tuning.is_swapped:
                T.gemm(weight, x, total, transpose_B=True, policy=policy)
            else:
                T.gemm(x, weight, total, transpose_B=True, policy=policy)

    return walk


def _writer(spec: GemmDenseSpec, tuning: Tuning) -> Any:
    """Rounds the sums and writes those inside the result."""
    tile_rows, tile_channels = tuning.rows, tuning.channels

    @T.macro
    def store(total: T.Buffer, out_TGN: T.Buffer, place: tuple[Any, Any, Any], rows: Any) -> None:
        group, row, channel = place
        if tuning.is_swapped:
            for i, j in T.Parallel(tile_channels, tile_rows):
                if row + j < rows and channel + i < spec.out_width:
                    out_TGN[row + j, group, channel + i] = T.cast(total[i, j], spec.out_dtype)
        else:
            T.copy(total, out_TGN[row : row + tile_rows, group, channel : channel + tile_channels])

    return store
