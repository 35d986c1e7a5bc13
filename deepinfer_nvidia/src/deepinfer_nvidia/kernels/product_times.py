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

__all__ = ["fastest", "fitting"]


def _dense_us(measured: Measured, spec: GemmDenseSpec, rows: int, cores: int) -> float:
    """Waves of blocks, each with all steps along K."""
    tuning: Any = measured.tuning
    few_us, full_us = measured.figures["few_us"], measured.figures["full_us"]
    is_hopper = measured.kernel.startswith("hopper/")
    tile_rows = 64 * tuning.groups * tuning.tiles if is_hopper else tuning.rows
    down = -(-rows // tile_rows)
    if is_hopper:
        down = -(-down // tuning.down) * tuning.down
    tiles = down * -(-spec.out_width // tuning.channels) * spec.groups
    busy = min(1.0, tiles / cores)
    step_us = few_us + (full_us - few_us) * busy
    # The copy engine is slow where much of a tile lies outside the matrix.
    outside = 1 - rows / (down * tile_rows) if tile_rows >= 64 else 0.0
    time_us: float = -(-tiles // cores) * spec.in_width / 64 * step_us * (1 + 0.6 * outside)
    return time_us


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
    mean = rows / active
    # Rows are routed at random: a tile of two deviations more than the mean mostly suffices;
    # beyond, an expert leaves half of its last tile empty on average.
    is_one = mean + 2 * math.sqrt(mean) <= tuning.rows
    row_tiles = active * (1.0 if is_one else mean / tuning.rows + 0.5)
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
    return min(measured, key=lambda one: time_us(one, spec, max(rows, 1), cores))


def fitting(operator: str, measured: Sequence[Measured], spec: Any) -> list[Measured]:
    """The tunings with which a spec can be computed at all; all of them for other operators."""
    time_us = _TIMES.get(operator)
    return [one for one in measured if time_us is None or time_us(one, spec, 1, 1) < math.inf]
