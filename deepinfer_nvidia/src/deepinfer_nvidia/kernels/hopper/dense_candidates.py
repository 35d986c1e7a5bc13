"""Which tiles of dense products on Hopper has nobody rated yet, and are worth a measurement?

``bench kernels --tune`` times them beside those of the table. Each answers one of three questions:
is a tile with fewer channels faster where what comes into a core bounds a few rows, what does it
take to divide K, in how many blocks of a cluster, and in boxes of how many rows do they come best?
"""

from deepinfer_core.interfaces.operators.gemm import GemmDenseSpec

from deepinfer_nvidia.kernels.hopper.ring import SHARED_BYTES, Tuning
from deepinfer_nvidia.kernels.product_times import parts_of

__all__ = ["dense_candidates"]

_MOST_STAGES = 12
_RESULT_BYTES = 27 * 1024
"""Shared memory that persistent blocks leave to results."""

_BOXES = (64, 128)
"""Rows of one copy for tiles of 128 rows; 32 suits 96 rows alone, and costs others a fifth."""

_ALONE = (
    *((channels, 32) for channels in (40, 48, 64)),
    *((channels, box) for channels in (32, 40, 48) for box in _BOXES),
    *((channels, 128) for channels in (64, 72, 80, 128, 160)),
)
"""Channels, rows of a copy: tiles of 128 rows of blocks that divide nothing."""

_SPREAD: dict[int, tuple[tuple[int, int, int, int], ...]] = {
    2: (
        *((1, channels, 1, 16) for channels in (64, 72, 80)),
        *((2, channels, 1, 32) for channels in (64, 72, 80)),
        *((2, channels, 1, box) for channels in (64, 72, 80, 128, 144, 160) for box in _BOXES),
    ),
    4: (
        (1, 128, 1, 16),
        *((2, channels, 1, box) for channels in (96, 192) for box in _BOXES),
        *((2, channels, 2, box) for channels in (80, 160) for box in _BOXES),
        (3, 128, 1, 64),
    ),
    8: (
        *((2, channels, 1, box) for channels in (48, 96, 128) for box in _BOXES),
        *((2, channels, 2, box) for channels in (64, 96, 128) for box in _BOXES),
        *((2, channels, 4, box) for channels in (48, 64) for box in _BOXES),
    ),
}
"""By parts of K: warp groups, channels, parts of K that a block multiplies, rows of a copy."""

_IN_TURN: dict[int, tuple[tuple[int, int], ...]] = {
    2: tuple((channels, box) for channels in (64, 72, 80, 128, 144, 160, 192) for box in _BOXES),
    4: tuple((channels, 128) for channels in (80, 128, 160)),
    8: tuple((channels, 128) for channels in (64, 96, 128)),
}
"""By parts of K that one block multiplies one after the other: channels and rows of a copy."""

_MOST_DIVIDED = 5120
_LEAST_DIVIDED = 4096
"""Channels up to which, and inputs from which, halves of K are worth a look: more channels keep all
cores busy as they are, and fewer inputs are multiplied sooner than parts are added."""


def dense_candidates(spec: GemmDenseSpec) -> tuple[Tuning, ...]:
    """Tunings that the table need not have; of as many parts of K as now, and of twice one."""
    parts = parts_of(spec)
    if parts > 1:
        return tuple(_divided(parts))
    is_long = spec.in_width >= _LEAST_DIVIDED and spec.out_width <= _MOST_DIVIDED
    alone = [_alone(*tile) for tile in _ALONE]
    return (*alone, *(_divided(2) if is_long and spec.groups == 1 else ()))


def _divided(parts: int) -> list[Tuning]:
    spread = [_spread(parts, *tile) for tile in _SPREAD[parts]]
    return spread + [_in_turn(parts, *tile) for tile in _IN_TURN[parts]]


def _alone(channels: int, row_box: int) -> Tuning:
    stages = _stages(128, channels, _RESULT_BYTES)
    return Tuning(
        channels=channels,
        stages=stages,
        row_box=row_box,
        registers=224 if channels > 80 else 0,
    )


def _in_turn(parts: int, channels: int, row_box: int) -> Tuning:
    """Twice the sums in registers: of the parts before, and of the one that is multiplied."""
    stages = _stages(128, channels, _RESULT_BYTES)
    registers = 0 if channels <= 80 else 232 if channels > 160 else 224
    return Tuning(
        channels=channels, stages=stages, row_box=row_box, registers=registers, parts=parts
    )


def _spread(parts: int, groups: int, channels: int, held: int, row_box: int) -> Tuning:
    # Nine warps have up to 168 registers a thread.
    registers = 224 if groups == 2 and held * channels // 2 > 128 else 0
    return Tuning(
        groups=groups, channels=channels, parts=parts, is_spread=True, held=held,
        stages=_stages(groups * 64, channels, 0), row_box=row_box, registers=registers,
    )  # fmt: skip


def _stages(rows: int, channels: int, besides: int) -> int:
    """As many as there is room for."""
    return min(_MOST_STAGES, (SHARED_BYTES - besides) // ((rows + channels) * 128 + 16))
