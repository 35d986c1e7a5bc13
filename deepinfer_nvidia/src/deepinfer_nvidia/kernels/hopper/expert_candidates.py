"""Which tiles of grouped products on Hopper has nobody rated yet, and are worth a measurement?

``bench kernels --tune`` times them beside those of the table. A deployment has seven experts a
device, so at few rows it is decisive how many waves their channels make: blocks that share a core
take smaller pieces. At more rows it is how well a tile fits what a router leaves an expert.
"""

from collections.abc import Iterator
from typing import Any

from deepinfer_core.interfaces.operators.gemm import GemmExpertsSpec

from deepinfer_nvidia.gemm.packing import RECORD_BYTES
from deepinfer_nvidia.kernels.hopper.ring import SHARED_BYTES

__all__ = ["expert_candidates"]

_SHARED = ((1, 1, 4), (1, 1, 5), (1, 2, 3), (2, 1, 2), (2, 1, 3), (4, 1, 1), (5, 1, 1))
"""Warp groups, tiles of each, blocks of a core."""

_SHARED_ROWS = (8, 16, 32, 48, 64, 96)

_MOVED = ((1, 96), (1, 128), (1, 160), (1, 192), (2, 64), (2, 96), (2, 128))
"""Tiles of two groups that have most registers of a core, and their rows; they are halved."""

_MOVED_REGISTERS = 224
_CORE_BYTES = SHARED_BYTES + 1024
_BLOCK_BYTES = 4096
"""Of a block that are no stage: barriers, and ends of up to 384 experts, which are two numbers."""

_CORE_REGISTERS = 65536
_BESIDES = 60
"""Registers of a multiplying thread besides its sums: two sets of weights, addresses."""

_FEWEST_STAGES, _ENOUGH_STAGES, _MOST_STAGES = 3, 4, 8


def expert_candidates(spec: GemmExpertsSpec) -> Iterator[dict[str, Any]]:
    """Fields of ``gemm_experts.Tuning`` that the table need not have, and that fit a core."""
    channel_tiles = -(-spec.out_width // 64)
    shapes = [*_sharing(), *_moved()]
    yield from (one for one in shapes if not channel_tiles % (one["groups"] * one["tiles"]))


def _sharing() -> Iterator[dict[str, Any]]:
    for groups, tiles, blocks in _SHARED:
        threads = blocks * (128 * groups + 32)
        for rows in _SHARED_ROWS:
            stages = _stages(groups * tiles, tiles, rows, blocks)
            if stages and tiles * rows // 2 + _BESIDES <= _CORE_REGISTERS // threads // 8 * 8:
                sizes = {"groups": groups, "tiles": tiles, "rows": rows}
                yield {**sizes, **stages, "blocks_per_core": blocks}


def _moved() -> Iterator[dict[str, Any]]:
    for tiles, rows in _MOVED:
        stages = _stages(2 * tiles, tiles, rows, 1)
        sizes = {"groups": 2, "tiles": tiles, "rows": rows}
        yield {**sizes, **stages, "registers": _MOVED_REGISTERS, "is_halved": True}


def _stages(tiles: int, each: int, rows: int, blocks: int) -> dict[str, int]:
    """The deepest ones of which there is room for a few; nothing if there is none."""
    room = _CORE_BYTES // blocks - 1024 - _BLOCK_BYTES
    for fewest in (_ENOUGH_STAGES, _FEWEST_STAGES):
        for depth in (4, 2, 1):
            size = -(-depth * (rows * 128 + tiles * RECORD_BYTES) // 1024) * 1024
            if room // size >= fewest and depth * each % 2 == 0:
                return {"depth": depth, "stages": min(_MOST_STAGES, room // size)}
    return {}
