"""Which tiles of dense products on Hopper has nobody rated yet, and are worth a measurement?

``bench kernels --tune`` times them beside those of the table. Each answers one of four questions:
is a tile with fewer channels faster where what comes into a core bounds a few rows, what does it
take to divide K, in how many blocks of a cluster, in boxes of how many rows do they come best, and
do sums go from block to block unseen while other blocks of the core multiply?
"""

from dataclasses import dataclass

from deepinfer_core.interfaces.operators.gemm import GemmDenseSpec

from deepinfer_nvidia.kernels.hopper.ring import SHARED_BYTES, Tuning
from deepinfer_nvidia.kernels.product_times import parts_of

__all__ = ["dense_candidates"]

_MOST_STAGES = 12
_RESULT_BYTES = 27 * 1024
"""Shared memory that persistent blocks leave to results."""

_BOXES = (64, 128)
"""Rows of one copy for tiles of 128 rows; 32 suits 96 rows alone, and costs others a fifth."""

_COPIES = 3
"""Most copies that may bring the channels of a stage: the channels of one divide those of the
product, and with more than these a tile took up to three times as long."""


@dataclass(frozen=True, slots=True)
class _Tile:
    """A block of a cluster that divides K.

    Attributes:
        groups: of 64 rows.
        channels: of the tile.
        row_box: rows of one copy.
        held: parts of K that the block multiplies.
        sharing: blocks of a core, by the shared memory that each takes.
    """

    groups: int
    channels: int
    row_box: int
    held: int = 1
    sharing: int = 1


_ALONE = (
    *((2, channels, 32) for channels in (40, 48, 64)),
    *((2, channels, box) for channels in (32, 40, 48) for box in _BOXES),
    *((2, channels, 128) for channels in (64, 72, 80, 128, 160)),
    *((3, channels, 64) for channels in (32, 40, 48)),
)
"""Warp groups, channels, rows of a copy: tiles of blocks that divide nothing."""

_SPREAD: dict[int, tuple[_Tile, ...]] = {
    2: (
        *(_Tile(1, channels, box) for channels in (64, 72, 80) for box in (16, 32, 64)),
        *(_Tile(2, channels, 32) for channels in (64, 72, 80)),
        *(_Tile(2, ch, box) for ch in (64, 72, 80, 128, 144, 160) for box in _BOXES),
        *(_Tile(groups, channels, 64) for channels in (64, 72, 80) for groups in (3, 4)),
    ),
    4: (
        *(_Tile(1, channels, 16) for channels in (16, 32, 64, 128)),
        *(_Tile(2, channels, 64) for channels in (48, 64, 96)),
        *(_Tile(2, channels, 128) for channels in (48, 64, 128, 192)),
        *(_Tile(2, channels, 128, 2) for channels in (48, 64, 80, 96, 128, 160)),
        *(_Tile(1, channels, 64, 1, 2) for channels in (64, 128)),
        _Tile(3, 128, 64),
    ),
    8: (
        *(_Tile(2, channels, 64) for channels in (48, 96, 128)),
        *(_Tile(2, channels, 64, 2) for channels in (96, 128)),
        *(_Tile(2, channels, 64, 4) for channels in (48, 64)),
        *(_Tile(1, channels, 64, 1, 2) for channels in (96, 128)),
        *(_Tile(2, channels, 128, 1, 2) for channels in (64, 96, 128)),
        *(_Tile(1, channels, 64, 2, 3) for channels in (64, 96)),
        _Tile(2, 64, 128, 2, 2),
        _Tile(1, 64, 64, 1, 4),
        _Tile(1, 128, 64, 1, 3),
        _Tile(1, 128, 64, 2, 2),
        _Tile(2, 64, 128, 1, 3),
    ),
}
"""By parts of K, which as many blocks of a cluster have as hold all of them."""

_IN_TURN: dict[int, tuple[tuple[int, int], ...]] = {
    2: tuple((channels, box) for channels in (64, 72, 80, 128, 144, 160, 192) for box in _BOXES),
    4: tuple((channels, 128) for channels in (48, 64, 80, 96, 128, 160)),
    8: tuple((channels, 128) for channels in (48, 64, 96, 128)),
}
"""By parts of K that one block multiplies one after the other: channels and rows of a copy."""

_OTHER_PARTS = {1: 2, 8: 4}
"""By the parts that the widths ask for, others that may be better for all rows together."""

_MOST_DIVIDED = 5120
_LEAST_DIVIDED = 2304
"""Channels up to which, and inputs from which, halves of K are worth a look: more channels keep all
cores busy as they are, and fewer inputs are multiplied sooner than parts are added."""


def dense_candidates(spec: GemmDenseSpec) -> tuple[Tuning, ...]:
    """Tunings that the table need not have; of as many parts of K as now, and of others."""
    parts = parts_of(spec)
    is_long = spec.in_width >= _LEAST_DIVIDED and spec.out_width <= _MOST_DIVIDED
    found = _divided(parts) if parts > 1 else [_alone(*tile) for tile in _ALONE]
    if is_long and spec.groups == 1 and parts in _OTHER_PARTS:
        found += _divided(_OTHER_PARTS[parts])
    few = [one for one in found if _COPIES * one.channel_box(spec.out_width) >= one.channels]
    return tuple(dict.fromkeys(few))


def _divided(parts: int) -> list[Tuning]:
    spread = [_spread(parts, tile) for tile in _SPREAD[parts]]
    return spread + [_in_turn(parts, *tile) for tile in _IN_TURN[parts]]


def _alone(groups: int, channels: int, row_box: int) -> Tuning:
    stages = _stages(groups * 64, channels, _RESULT_BYTES)
    registers = 224 if channels > 80 else 0
    return Tuning(
        groups=groups, channels=channels, stages=stages, row_box=row_box, registers=registers
    )


def _in_turn(parts: int, channels: int, row_box: int) -> Tuning:
    """Twice the sums in registers: of the parts before, and of the one that is multiplied."""
    stages = _stages(128, channels, _RESULT_BYTES)
    registers = 0 if channels <= 80 else 232 if channels > 160 else 224
    return Tuning(
        channels=channels, stages=stages, row_box=row_box, registers=registers, parts=parts
    )


def _spread(parts: int, tile: _Tile) -> Tuning:
    # Nine warps have up to 168 registers a thread.
    registers = 224 if tile.groups == 2 and tile.held * tile.channels // 2 > 128 else 0
    others = SHARED_BYTES - ((SHARED_BYTES + 1024) // tile.sharing - 1024)
    return Tuning(
        groups=tile.groups, channels=tile.channels, parts=parts, is_spread=True, held=tile.held,
        stages=_stages(tile.groups * 64, tile.channels, others), row_box=tile.row_box,
        registers=registers,
    )  # fmt: skip


def _stages(rows: int, channels: int, besides: int) -> int:
    """As many as there is room for."""
    return min(_MOST_STAGES, (SHARED_BYTES - besides) // ((rows + channels) * 128 + 16))
