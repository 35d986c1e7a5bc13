"""Which tiles are used for how many rows?

Data from measurements on an H200. Bits of a row do not depend on the choice: every kernel adds up
along K in one order with instructions of 16 inputs, and the device tests compare all entries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from deepinfer_core.interfaces.gemm import DenseSpec
from deepinfer_core.interfaces.operators.catalogue import Build

from deepinfer_nvidia.kernels import gemm_dense
from deepinfer_nvidia.kernels.hopper import gemm_dense as hopper_dense
from deepinfer_nvidia.kernels.hopper import gemm_split
from deepinfer_nvidia.kernels.hopper.gemm_experts import Tuning as ExpertTuning
from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["DenseChoice", "dense_choice", "expert_tuning"]

_Tuning = TypeVar("_Tuning")


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseChoice:
    """How one dense product is run for a range of row counts.

    Attributes:
        build: of the kernel's file.
        parts: parts of K, each summed on its own; the same for every number of rows.
        tuning: tiles.
    """

    build: Build
    parts: int = 1
    tuning: KernelTuning


_FEW_ROWS: tuple[tuple[int, gemm_dense.Tuning], ...] = (
    (8, gemm_dense.Tuning(rows=8, channels=64, depth=128, stages=8, is_swapped=True)),
    (16, gemm_dense.Tuning(rows=16, channels=64, depth=128, stages=8, is_swapped=True)),
    (32, gemm_dense.Tuning(rows=32, channels=64, depth=128, stages=7, is_swapped=True)),
    (64, gemm_dense.Tuning(rows=64, channels=64, depth=128, stages=6, is_swapped=True)),
)
"""Largest number of rows, and the tiles up to it. (The copy engine is slow where most of a tile
lies outside the matrix, so a tile should not be much larger than the rows.)"""

_WIDE = gemm_dense.Tuning(
    rows=128, channels=256, stages=4, threads=256, panel=8, is_split_by_rows=True
)
_NARROW = gemm_dense.Tuning(rows=128, channels=128, stages=4, threads=256)
_WIDE_CHANNELS = 1024
"""From so many channels on, the wide tile fills the device."""

_HOPPER: tuple[tuple[int, hopper_dense.Tuning], ...] = (
    (256, hopper_dense.Tuning(channels=64, stages=8)),
    (1 << 40, hopper_dense.Tuning(channels=256, stages=4, registers=224)),
)
"""Largest number of rows, and the tiles up to it, beyond those of ``_FEW_ROWS``."""

_SPLIT: tuple[tuple[int, gemm_split.Tuning], ...] = (
    (8, gemm_split.Tuning(rows=8, depth=2, stages=5)),
    (16, gemm_split.Tuning(rows=16, depth=2, stages=5)),
    (32, gemm_split.Tuning(rows=32, depth=2, stages=5)),
    (64, gemm_split.Tuning(rows=64, depth=2, stages=6)),
    (1 << 40, gemm_split.Tuning(rows=128, depth=2, stages=4)),
)
"""Largest number of rows, and the tiles up to it, where K is divided."""

_SPLIT_CHANNELS, _SPLIT_INPUTS = 1280, 4096
"""K is divided where so few channels would leave most cores idle, and K is that long."""

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


def dense_choice(spec: DenseSpec, max_rows: int, *, is_hopper: bool, cores: int) -> DenseChoice:
    """Kernel and tiles for products of at most ``max_rows`` rows."""
    if is_hopper and (parts := _parts(spec)) > 1:
        return DenseChoice(build=gemm_split.build, parts=parts, tuning=_up_to(_SPLIT, max_rows))
    if max_rows <= _FEW_ROWS[-1][0]:
        return DenseChoice(build=gemm_dense.build, tuning=_up_to(_FEW_ROWS, max_rows))
    # With groups a stage of 64 inputs must not reach into the inputs of the next group.
    if is_hopper and spec.in_width % (64 if spec.groups > 1 else 8) == 0:
        tuning = replace(_up_to(_HOPPER, max_rows), cores=cores)
        return DenseChoice(build=hopper_dense.build, tuning=tuning)
    tiles = _WIDE if spec.out_width >= _WIDE_CHANNELS else _NARROW
    return DenseChoice(build=gemm_dense.build, tuning=tiles)


def _parts(spec: DenseSpec) -> int:
    """Parts of K, from the widths alone."""
    is_narrow = spec.out_width <= _SPLIT_CHANNELS and spec.groups == 1
    if not is_narrow or spec.in_width < _SPLIT_INPUTS:
        return 1
    parts = 8 if spec.out_width <= _SPLIT_CHANNELS // 2 else 4
    # A part is whole stages of 128 inputs.
    return parts if spec.in_width % (parts * 128) == 0 else 1


def _up_to(table: Sequence[tuple[int, _Tuning]], rows: int) -> _Tuning:
    return next(tuning for most, tuning in table if rows <= most)


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
