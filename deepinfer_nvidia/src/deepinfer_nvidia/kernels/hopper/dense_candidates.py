"""Which tiles of dense products on Hopper has nobody rated yet, and are worth a measurement?

``bench kernels --tune`` times them beside those of the table. Each answers one of two questions: is
a tile with fewer channels faster where what comes into a core bounds a few rows, and what does it
take to divide K, in how many blocks of a cluster?
"""

from deepinfer_core.interfaces.operators.gemm import GemmDenseSpec

from deepinfer_nvidia.kernels.hopper.ring import SHARED_BYTES, Tuning
from deepinfer_nvidia.kernels.product_times import parts_of

__all__ = ["dense_candidates"]

_MOST_STAGES = 12
_RESULT_BYTES = 27 * 1024
"""Shared memory that persistent blocks leave to results."""

_ALONE = (
    (1, 96, 16),
    (1, 112, 16),
    (2, 32, 32),
    (2, 40, 32),
    (2, 48, 32),
    (2, 64, 32),
    (2, 80, 32),
)
"""Warp groups, channels, rows of a copy: tiles of blocks that divide nothing."""

_SPREAD: dict[int, tuple[tuple[int, int, int, int], ...]] = {
    2: (
        *((1, 1, channels, 1) for channels in (32, 48, 64, 72, 80, 128)),
        *((2, 1, channels, 1) for channels in (32, 48, 64, 72, 80, 128, 144, 160)),
        (2, 2, 128, 1),
    ),
    4: (
        *((1, 1, channels, 1) for channels in (48, 80, 128)),
        *((2, 1, channels, 1) for channels in (96, 192)),
        *((1, 1, channels, 2) for channels in (40, 80)),
        *((2, 1, channels, 2) for channels in (40, 64, 80, 96, 160)),
        (3, 1, 128, 1),
    ),
    8: (
        *((2, 1, channels, 1) for channels in (48, 96, 128)),
        *((1, 1, channels, held) for channels in (32, 64) for held in (2, 4)),
        *((2, 1, channels, 2) for channels in (64, 96, 128, 176)),
        *((2, 1, channels, 4) for channels in (32, 48, 64)),
        *((3, 1, channels, 2) for channels in (64, 128)),
    ),
}
"""By parts of K: warp groups, tiles of each, channels, and parts of K that a block multiplies."""

_IN_TURN: dict[int, tuple[tuple[int, int], ...]] = {
    2: ((1, 80), (2, 64), (2, 72), (2, 80), (2, 128), (2, 144), (2, 160), (2, 192)),
    4: ((1, 80), (2, 128), (2, 192)),
    8: ((2, 160), (2, 192)),
}
"""By parts of K that one block multiplies one after the other: warp groups and channels."""

_MOST_DIVIDED = 5120
_LEAST_DIVIDED = 2304
"""Channels up to which, and inputs from which, halves of K are worth a look: more channels keep all
cores busy as they are, and fewer inputs are multiplied sooner than parts are added."""


def dense_candidates(spec: GemmDenseSpec) -> tuple[Tuning, ...]:
    """Tunings that the table need not have; of as many parts of K as now, and of twice one."""
    parts = parts_of(spec)
    found = [_alone(*tile) for tile in _ALONE] if parts == 1 else []
    if parts > 1:
        return tuple(_divided(parts))
    is_long = spec.in_width >= _LEAST_DIVIDED and spec.out_width <= _MOST_DIVIDED
    return (*found, *(_divided(2) if is_long and spec.groups == 1 else ()))


def _divided(parts: int) -> list[Tuning]:
    spread = [_spread(parts, *tile) for tile in _SPREAD[parts]]
    return spread + [_in_turn(parts, *tile) for tile in _IN_TURN[parts]]


def _alone(groups: int, channels: int, row_box: int) -> Tuning:
    stages = _stages(groups * 64, channels, _RESULT_BYTES)
    registers = 224 if groups == 2 and channels > 80 else 0
    return Tuning(
        groups=groups, channels=channels, stages=stages, row_box=row_box, registers=registers
    )


def _in_turn(parts: int, groups: int, channels: int) -> Tuning:
    """Twice the sums in registers: of the parts before, and of the one that is multiplied."""
    stages = _stages(groups * 64, channels, _RESULT_BYTES)
    registers = 0 if groups == 1 or channels <= 80 else 232 if channels > 160 else 224
    return Tuning(
        groups=groups, channels=channels, stages=stages, registers=registers, parts=parts,
        row_box=16 if groups == 1 else 32,
    )  # fmt: skip


def _spread(parts: int, groups: int, tiles: int, channels: int, held: int) -> Tuning:
    # Nine warps have up to 168 registers a thread.
    registers = 224 if groups == 2 and held * tiles * channels // 2 > 128 else 0
    return Tuning(
        groups=groups, tiles=tiles, channels=channels, parts=parts, is_spread=True, held=held,
        stages=_stages(groups * tiles * 64, channels, 0), row_box=16 if groups == 1 else 32,
        registers=registers,
    )  # fmt: skip


def _stages(rows: int, channels: int, besides: int) -> int:
    """As many as there is room for."""
    return min(_MOST_STAGES, (SHARED_BYTES - besides) // ((rows + channels) * 128 + 16))
