"""Which tiles are used for how many rows?

Data from measurements on an H200. Bits of a row do not depend on the choice: every kernel adds up
along K in one order with instructions of 16 inputs, and the device tests compare all entries.
"""

from __future__ import annotations

import math
from dataclasses import replace

from deepinfer_core.interfaces.gemm import DenseSpec

from deepinfer_nvidia.kernels.gemm_dense import Tuning as DenseTuning
from deepinfer_nvidia.kernels.hopper.gemm_dense import Tuning as HopperTuning
from deepinfer_nvidia.kernels.hopper.gemm_experts import Tuning as ExpertTuning

__all__ = ["dense_tuning", "expert_tuning", "hopper_tuning"]

_DENSE: tuple[tuple[int, DenseTuning], ...] = (
    (8, DenseTuning(rows=8, channels=64, depth=128, stages=8, is_swapped=True)),
    (16, DenseTuning(rows=16, channels=64, depth=128, stages=8, is_swapped=True)),
    (32, DenseTuning(rows=32, channels=64, depth=128, stages=7, is_swapped=True)),
    (64, DenseTuning(rows=64, channels=64, depth=128, stages=6, is_swapped=True)),
    (128, DenseTuning(rows=128, channels=64, depth=128, stages=4, is_swapped=True)),
)
"""Largest number of rows, and the tiles up to it."""

_DENSE_WIDE = DenseTuning(
    rows=128, channels=256, stages=4, threads=256, panel=8, is_split_by_rows=True
)
_DENSE_NARROW = DenseTuning(rows=128, channels=128, stages=4, threads=256)
_WIDE_CHANNELS = 1024
"""From so many channels on, the wide tile fills the device."""

_HOPPER: tuple[tuple[int, HopperTuning], ...] = (
    (1 << 40, HopperTuning(channels=256, stages=4, down=2, registers=224)),
)
"""Largest number of rows, and the tiles up to it, from more rows than ``_HOPPER_ROWS`` on."""

_HOPPER_ROWS = 128

_EXPERTS: tuple[tuple[float, ExpertTuning], ...] = (
    (6.9, ExpertTuning(groups=4, rows=8, depth=4, stages=5)),
    (6.9, ExpertTuning(groups=5, rows=8, depth=4, stages=4)),
    (7.0, ExpertTuning(groups=2, rows=8, depth=4, stages=4, blocks_per_core=2)),
    (7.3, ExpertTuning(groups=4, rows=16, depth=4, stages=4)),
    (7.3, ExpertTuning(groups=5, rows=16, depth=4, stages=4)),
    (7.5, ExpertTuning(groups=2, rows=16, depth=4, stages=4, blocks_per_core=2)),
    (7.9, ExpertTuning(groups=2, rows=32, depth=4, stages=3, blocks_per_core=2)),
    (10.3, ExpertTuning(groups=4, rows=64, depth=2, stages=5)),
    (11.1, ExpertTuning(groups=2, rows=64, depth=2, stages=4, blocks_per_core=2)),
    (15.6, ExpertTuning(groups=2, tiles=2, rows=128, depth=2, stages=4, registers=224)),
    (16.3, ExpertTuning(groups=2, rows=128, depth=2, stages=5, registers=224)),
    (27.8, ExpertTuning(groups=2, rows=256, depth=2, stages=3, registers=224)),
    (9.0, ExpertTuning(groups=1, rows=16, depth=4, stages=3, blocks_per_core=4)),
)
"""Microseconds of 64 channels by 5120 inputs on a full core, and the tiles; the last fit any N."""


def dense_tuning(out_width: int, max_rows: int) -> DenseTuning:
    """Tiles for products of at most ``max_rows`` rows."""
    for most, tuning in _DENSE:
        if max_rows <= most:
            return tuning
    return _DENSE_WIDE if out_width >= _WIDE_CHANNELS else _DENSE_NARROW


def hopper_tuning(spec: DenseSpec, max_rows: int, cores: int) -> HopperTuning | None:
    """Tiles of the kernel for Hopper, or None where TileLang's is as fast, or the widths ragged.

    With groups a stage must not reach into the inputs of the next group.
    """
    is_ragged = spec.in_width % 8 or (spec.groups > 1 and spec.in_width % 64)
    if max_rows <= _HOPPER_ROWS or is_ragged:
        return None
    tuning = next(tuning for most, tuning in _HOPPER if max_rows <= most)
    return replace(tuning, cores=cores)


def expert_tuning(experts: int, out_width: int, max_rows: int, cores: int) -> ExpertTuning:
    """The tiles that should take the least time for ``max_rows`` rows spread over ``experts``.

    Few experts fill the device in one or two waves, so the number of waves decides as much as the
    speed of a tile.
    """
    active = max(min(experts, max_rows), 1)
    mean = max_rows / active
    channel_tiles = -(-out_width // 64)

    def time_us(choice: tuple[float, ExpertTuning]) -> float:
        cost_us, tuning = choice
        share = tuning.groups * tuning.tiles
        # An expert has a part of a tile more than its rows fill, half of one on average.
        row_tiles = active * max(1.0, mean / tuning.rows + 0.5)
        waves = math.ceil(row_tiles * (channel_tiles / share) / (cores * tuning.blocks_per_core))
        return waves * tuning.blocks_per_core * share * cost_us

    fitting = [
        choice for choice in _EXPERTS if channel_tiles % (choice[1].groups * choice[1].tiles) == 0
    ]
    return replace(min(fitting, key=time_us)[1], cores=cores)
