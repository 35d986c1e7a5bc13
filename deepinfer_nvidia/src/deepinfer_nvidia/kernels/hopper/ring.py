"""How are dense products on Hopper cut into tiles? The C++ side is ``gemm_ring.cuh``."""

from dataclasses import dataclass
from math import gcd
from pathlib import Path

from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["SHARED_BYTES", "Tuning", "sources"]

SHARED_BYTES = 227 * 1024
"""Shared memory that a block of Hopper can have; a core has 1024 more for each block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(KernelTuning):
    """How the work is cut.

    Attributes:
        groups: warp groups that multiply.
        tiles: tiles of 64 rows that each of them owns.
        channels: channels of a tile, 8 to 256.
        stages: stages of 64 inputs in shared memory.
        down: tiles of rows in a cluster.
        across: tiles of channels in a cluster.
        row_box: rows of one copy; rows that do not exist cost time, so small tiles have small ones.
        parts: parts of K, summed on their own and added in order. The one number here that changes
            bits: it follows from the widths of a product, and is the same for all numbers of rows.
        is_spread: the parts are multiplied by the blocks of a cluster, not all by one.
        held: parts that each of these blocks multiplies.
        band: clusters of rows that run next to each other, if blocks stay.
        blocks_per_core: blocks that share a core, if they stay.
        cores: streaming multiprocessors of the device.
        registers: of a multiplying thread when they are moved between warp groups; 0 leaves them.
    """

    groups: int = 2
    tiles: int = 1
    channels: int
    stages: int
    down: int = 1
    across: int = 1
    row_box: int = 64
    parts: int = 1
    is_spread: bool = False
    held: int = 1
    band: int = 8
    blocks_per_core: int = 1
    cores: int = 132
    registers: int = 0

    @property
    def rows(self) -> int:
        """Of a tile."""
        return self.groups * self.tiles * 64

    @property
    def ring_bytes(self) -> int:
        """Stages and their barriers."""
        return self.stages * ((self.rows + self.channels) * 128 + 16)

    @property
    def threads_of_a_block(self) -> int:
        """A warp copies; where registers are moved between warp groups it gets a whole one."""
        return 128 * self.groups + (128 if self.registers else 32)

    @property
    def spread_blocks(self) -> int:
        """Of a cluster that divides K."""
        return self.parts // self.held

    @property
    def spread_blocks_per_core(self) -> int:
        """Blocks without results in shared memory that a core can have, up to two."""
        return 2 if 2 * (self.ring_bytes + 1024) <= SHARED_BYTES + 1024 else 1

    def channel_box(self, out_width: int) -> int:
        """Channels of one copy: as many as can be without some that do not exist."""
        return gcd(self.channels // self.down, -(-out_width // 8) * 8)

    def ring(self, out_width: int) -> str:
        """The C++ type."""
        numbers = (self.groups, self.tiles, self.channels, self.stages, self.down, self.across)
        boxes = (self.row_box, self.channel_box(out_width))
        return f"Ring<{', '.join(map(str, (*numbers, *boxes)))}>"


def sources(*names: str) -> str:
    """C++ text of this folder's files, one behind the other."""
    return "".join(Path(__file__).with_name(name).read_text() for name in names)
