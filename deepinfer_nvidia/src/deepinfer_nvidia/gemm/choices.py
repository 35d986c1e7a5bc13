"""Which tiles are used for how many rows?

Data from measurements on an H200. Bits of a row do not depend on the choice: every kernel adds up
along K in one order with instructions of 16 inputs, and the device tests compare all entries.
"""

from __future__ import annotations

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

_EXPERTS: tuple[tuple[int, ExpertTuning], ...] = (
    (8, ExpertTuning(groups=2, rows=8, depth=4, stages=4, blocks_per_core=2)),
    (16, ExpertTuning(groups=2, rows=16, depth=4, stages=4, blocks_per_core=2)),
    (32, ExpertTuning(groups=2, rows=32, depth=4, stages=3, blocks_per_core=2)),
    (64, ExpertTuning(groups=2, rows=64, depth=2, stages=3, blocks_per_core=2)),
    (1 << 40, ExpertTuning(groups=2, tiles=2, rows=128, depth=1, stages=8, registers=232)),
)
"""Rows of an expert on average, and the tiles up to it."""

_EXPERTS_RAGGED = ExpertTuning(groups=1, rows=16, depth=4, stages=4, blocks_per_core=2)
"""Where the tiles of channels do not divide the width."""


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
    """Tiles for ``max_rows`` rows spread over ``experts``."""
    mean = -(-max_rows // max(experts, 1))
    tuning = next(tuning for most, tuning in _EXPERTS if mean <= most)
    channel_tiles = -(-out_width // 64)
    if channel_tiles % (tuning.groups * tuning.tiles):
        tuning = _EXPERTS_RAGGED
    return replace(tuning, cores=cores)
