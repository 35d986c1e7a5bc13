"""Which tiles are used for how many rows?

Data from measurements on an H200. Bits of a row do not depend on the choice: every kernel adds up
along K in one order with instructions of 16 inputs, and the device tests compare all entries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from deepinfer_core.interfaces.gemm import DenseSpec
from deepinfer_core.interfaces.operators.catalogue import Build

from deepinfer_nvidia.kernels import gemm_dense
from deepinfer_nvidia.kernels.gemm_dense import Tuning as _Dense
from deepinfer_nvidia.kernels.hopper import gemm_dense as hopper_dense
from deepinfer_nvidia.kernels.hopper.gemm_dense import Tuning as _Hopper
from deepinfer_nvidia.kernels.hopper.gemm_experts import Tuning as ExpertTuning

__all__ = [
    "DENSE_CHOICES",
    "EXPERT_TUNINGS",
    "DenseChoice",
    "dense_choice",
    "expert_tuning",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseChoice:
    """One way to run a dense product, and how long it takes.

    Attributes:
        build: of the kernel's file.
        tuning: tiles.
        tile: rows and channels of a block.
        few_us: one step of 64 inputs where few cores are busy.
        full_us: the same where all are, and share the memory.
    """

    build: Build
    tuning: gemm_dense.Tuning | hopper_dense.Tuning
    tile: tuple[int, int]
    few_us: float
    full_us: float


def _tiles(few_us: float, full_us: float, tuning: gemm_dense.Tuning) -> DenseChoice:
    return DenseChoice(
        build=gemm_dense.build,
        tuning=tuning,
        tile=(tuning.rows, tuning.channels),
        few_us=few_us,
        full_us=full_us,
    )


def _hopper(few_us: float, full_us: float, tuning: hopper_dense.Tuning) -> DenseChoice:
    return DenseChoice(
        build=hopper_dense.build,
        tuning=tuning,
        tile=(64 * tuning.groups * tuning.tiles, tuning.channels),
        few_us=few_us,
        full_us=full_us,
    )


_TILES = (
    _tiles(0.115, 0.24, _Dense(rows=8, channels=64, depth=128, stages=8, is_swapped=True)),
    _tiles(0.118, 0.24, _Dense(rows=16, channels=64, depth=128, stages=8, is_swapped=True)),
    _tiles(0.14, 0.25, _Dense(rows=32, channels=64, depth=128, stages=7, is_swapped=True)),
    _tiles(0.125, 0.20, _Dense(rows=64, channels=32, depth=128, stages=6)),
    _tiles(0.155, 0.27, _Dense(rows=64, channels=64, depth=128, stages=6)),
)
_TILES_FOR_MANY_ROWS = (
    _tiles(0.45, 0.52, _Dense(rows=128, channels=128, stages=4, threads=256)),
    _tiles(0.68, 0.82, _Dense(rows=128, channels=256, stages=4, threads=256, panel=8)),
)
_HOPPER = (
    _hopper(0.17, 0.215, _Hopper(groups=1, channels=64, stages=12, down=2)),
    _hopper(0.225, 0.27, _Hopper(channels=64, stages=8)),
    _hopper(0.35, 0.43, _Hopper(channels=128, stages=6, down=2)),
    _hopper(0.50, 0.58, _Hopper(channels=192, stages=5, down=2, registers=224)),
    _hopper(0.65, 0.80, _Hopper(channels=256, stages=4, down=2, band=16, registers=224)),
)

_EXPERTS: tuple[tuple[float, ExpertTuning], ...] = (
    (6.9, ExpertTuning(groups=4, rows=8, depth=4, stages=5)),
    (6.9, ExpertTuning(groups=5, rows=8, depth=4, stages=4)),
    (7.0, ExpertTuning(groups=2, rows=8, depth=4, stages=4, blocks_per_core=2)),
    (7.3, ExpertTuning(groups=4, rows=16, depth=4, stages=4)),
    (7.3, ExpertTuning(groups=5, rows=16, depth=4, stages=4)),
    (7.5, ExpertTuning(groups=2, rows=16, depth=4, stages=4, blocks_per_core=2)),
    (7.9, ExpertTuning(groups=4, rows=32, depth=4, stages=4)),
    (8.1, ExpertTuning(groups=5, rows=32, depth=2, stages=7)),
    (10.3, ExpertTuning(groups=5, rows=64, depth=2, stages=5)),
    (10.3, ExpertTuning(groups=4, rows=64, depth=2, stages=5)),
    (11.1, ExpertTuning(groups=2, rows=64, depth=2, stages=4, blocks_per_core=2)),
    (15.6, ExpertTuning(groups=2, tiles=2, rows=128, depth=2, stages=4, registers=224)),
    (16.3, ExpertTuning(groups=2, rows=128, depth=2, stages=5, registers=224)),
    (27.8, ExpertTuning(groups=2, rows=256, depth=2, stages=3, registers=224)),
    (9.0, ExpertTuning(groups=1, rows=16, depth=4, stages=3, blocks_per_core=4)),
)
"""Microseconds of 64 channels by 5120 inputs on a full core, and the tiles; the last fit any N."""


DENSE_CHOICES: tuple[DenseChoice, ...] = (*_TILES, *_TILES_FOR_MANY_ROWS, *_HOPPER)
"""All that dense products are run with; a row has the same bits with each."""

EXPERT_TUNINGS: tuple[ExpertTuning, ...] = tuple(tuning for _, tuning in _EXPERTS)
"""All that packed experts are run with; a row has the same bits with each."""


def dense_choice(spec: DenseSpec, max_rows: int, *, is_hopper: bool, cores: int) -> DenseChoice:
    """The kernel and tiles that should take the least time for ``max_rows`` rows."""
    # With groups a stage of 64 inputs must not reach into the inputs of the next group.
    is_whole = spec.in_width % (64 if spec.groups > 1 else 8) == 0
    many_rows = _HOPPER if is_hopper and is_whole else _TILES_FOR_MANY_ROWS
    choices: tuple[DenseChoice, ...] = (*_TILES, *many_rows)
    times_us = [_time_us(choice, spec, max(max_rows, 1), cores) for choice in choices]
    choice = choices[times_us.index(min(times_us))]
    if isinstance(choice.tuning, hopper_dense.Tuning):
        return replace(choice, tuning=replace(choice.tuning, cores=cores))
    return choice


def _time_us(choice: DenseChoice, spec: DenseSpec, rows: int, cores: int) -> float:
    """How long a product takes: waves of blocks, each with all steps along K."""
    tile_rows, tile_channels = choice.tile
    down = -(-rows // tile_rows)
    if isinstance(choice.tuning, hopper_dense.Tuning):
        down = -(-down // choice.tuning.down) * choice.tuning.down
    tiles = down * -(-spec.out_width // tile_channels) * spec.groups
    busy = min(1.0, tiles / cores)
    step_us = choice.few_us + (choice.full_us - choice.few_us) * busy
    # The copy engine is slow where much of a tile lies outside the matrix.
    outside = 1 - rows / (down * tile_rows) if tile_rows >= 64 else 0.0
    return -(-tiles // cores) * spec.in_width / 64 * step_us * (1 + 0.6 * outside)


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
        # Rows are routed at random: a tile of two deviations more than the mean mostly suffices;
        # beyond, an expert leaves half of its last tile empty on average.
        is_one = mean + 2 * math.sqrt(mean) <= tuning.rows
        row_tiles = active * (1.0 if is_one else mean / tuning.rows + 0.5)
        waves = math.ceil(row_tiles * (channel_tiles / share) / (cores * tuning.blocks_per_core))
        return waves * tuning.blocks_per_core * share * cost_us

    fitting = [
        choice for choice in _EXPERTS if channel_tiles % (choice[1].groups * choice[1].tiles) == 0
    ]
    return replace(min(fitting, key=time_us)[1], cores=cores)
