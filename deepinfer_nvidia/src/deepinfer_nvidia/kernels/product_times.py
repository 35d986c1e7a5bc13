"""How long should a matrix product take with one tuning? Pure arithmetic on measured figures.

Bits of a row do not depend on the choice: every kernel adds up along K in one order with
instructions of 16 inputs, and tests on a device compare all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepinfer_core.interfaces.operators.gemm import GemmDenseSpec, GemmExpertsSpec

    from deepinfer_nvidia.kernels.tuning.table import Measured

__all__ = ["fastest", "fitting", "parts_of"]

_PARTS = ((8, 8), (20, 4))
"""Most tiles of 64 channels, and the parts of K up to there."""

_LEAST_STEPS = 40
"""Steps of 64 inputs below which K is not divided."""

_HALF = 0.65
"""Of the time of an item of experts, that of one with half as many rows."""

_BYTES_A_US = 4.2e6
"""From device memory."""


def parts_of(spec: GemmDenseSpec) -> int:
    """Parts of K that are summed on their own on Hopper, where channels alone keep few cores busy.

    It follows from the widths alone, so that a row has the same bits among any number of rows.
    """
    tiles, steps = -(-spec.out_width // 64), -(-spec.in_width // 64)
    if spec.groups > 1 or steps < _LEAST_STEPS:
        return 1
    return next((parts for most, parts in _PARTS if tiles <= most), 1)


def _dense_us(measured: Measured, spec: GemmDenseSpec, rows: int, cores: int) -> float:
    """Waves of blocks, each with all its steps along K."""
    if measured.kernel == "hopper/gemm_dense":
        return _hopper_dense_us(measured, spec, rows, cores)
    tuning: Any = measured.tuning
    down = -(-rows // tuning.rows)
    tiles = down * -(-spec.out_width // tuning.channels) * spec.groups
    # The copy engine is slow where much of a tile lies outside the matrix.
    outside = 1 - rows / (down * tuning.rows) if tuning.rows >= 64 else 0.0
    step_us = _step_us(measured, tiles, cores) * (1 + 0.6 * outside)
    time_us: float = -(-tiles // cores) * spec.in_width / 64 * step_us
    return max(time_us, _weight_us(spec))


def _hopper_dense_us(measured: Measured, spec: GemmDenseSpec, rows: int, cores: int) -> float:
    tuning: Any = measured.tuning
    down = -(-rows // (tuning.rows * tuning.down)) * tuning.down
    across = -(-spec.out_width // (tuning.channels * tuning.across)) * tuning.across
    tiles = down * across * spec.groups
    steps = -(-spec.in_width // 64)
    if tuning.is_spread:
        blocks = tuning.spread_blocks
        tiles, steps = tiles * blocks, -(-steps // tuning.parts) * tuning.held
        # Blocks of a cluster lie together on the chip, which leaves some cores without one.
        cores = (cores - (cores // 8 if blocks > 2 else 0)) * tuning.spread_blocks_per_core
    step_us = _step_us(measured, tiles, cores)
    time_us: float = -(-tiles // cores) * (steps * step_us + measured.figures["tile_us"])
    return max(time_us, _weight_us(spec))


def _weight_us(spec: GemmDenseSpec) -> float:
    """What no tile is faster than: reading the weights."""
    return 2 * spec.in_width * spec.out_width * spec.groups / _BYTES_A_US


def _step_us(measured: Measured, tiles: int, cores: int) -> float:
    few_us, full_us = measured.figures["few_us"], measured.figures["full_us"]
    return few_us + (full_us - few_us) * min(1.0, tiles / cores)


def _row_tiles(mean: float, tuning: Any) -> float:
    """Tiles of an expert, a halved one as its share of the time of a whole one.

    Rows are routed at random: a tile of two deviations more than the mean mostly suffices; beyond,
    an expert leaves half of its last tile empty on average. With halves it leaves half of a half
    empty, and as many experts end with a half as with a whole tile.
    """
    rows: int = tuning.rows
    is_halved: bool = tuning.is_halved
    if mean + 2 * math.sqrt(mean) <= (rows // 2 if is_halved else rows):
        return _HALF if is_halved else 1.0
    return mean / rows + (_HALF / 2 if is_halved else 0.5)


def _experts_us(measured: Measured, spec: GemmExpertsSpec, rows: int, cores: int) -> float:
    """Waves of blocks; infinite where the channels of a block do not divide those of the product.

    Few experts fill the device in one or two waves, so the number of waves decides as much as the
    speed of a tile.
    """
    tuning: Any = measured.tuning
    share = tuning.groups * tuning.tiles
    channel_tiles = -(-spec.out_width // 64)
    if channel_tiles % share:
        return math.inf
    active = max(min(spec.experts, rows), 1)
    row_tiles = active * _row_tiles(rows / active, tuning)
    waves = math.ceil(row_tiles * (channel_tiles / share) / (cores * tuning.blocks_per_core))
    time_us: float = waves * tuning.blocks_per_core * share * measured.figures["core_us"]
    return time_us


_TIMES: dict[str, Callable[[Measured, Any, int, int], float]] = {
    "gemm_dense": _dense_us,
    "gemm_experts": _experts_us,
}
"""By operator: from a measured tuning, a spec, rows and cores to microseconds, for comparison."""


def fastest(
    operator: str, measured: Sequence[Measured], spec: Any, *, rows: int, cores: int
) -> Measured | None:
    """The tuning that should take the least time; None for other operators, or without any.

    Args:
        operator: what is computed.
        measured: to choose among; of equal ones the first is taken.
        spec: of the operator.
        rows: of the product; 0 counts as 1.
        cores: streaming multiprocessors of the device.
    """
    time_us = _TIMES.get(operator)
    if time_us is None or not measured:
        return None
    return min(
        _alike(operator, measured, spec),
        key=lambda one: time_us(one, spec, max(rows, 1), cores),
    )


def fitting(operator: str, measured: Sequence[Measured], spec: Any) -> list[Measured]:
    """The tunings with which a spec can be computed at all; all of them for other operators."""
    time_us = _TIMES.get(operator)
    alike = _alike(operator, measured, spec)
    return [one for one in alike if time_us is None or time_us(one, spec, 1, 1) < math.inf]


def _alike(operator: str, measured: Sequence[Measured], spec: Any) -> list[Measured]:
    """Those that give the same bits: with as many parts of K, if any kernel here divides it."""
    if operator != "gemm_dense":
        return list(measured)
    parts = [getattr(one.tuning, "parts", 1) for one in measured]
    wanted = parts_of(spec) if parts_of(spec) in parts else 1
    return [one for one, number in zip(measured, parts, strict=True) if number == wanted]
