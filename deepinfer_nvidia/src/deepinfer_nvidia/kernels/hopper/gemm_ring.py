"""How large are the tiles that dense products on Hopper multiply, and how do they come to a block?

The C++ side is ``gemm_ring.cuh``.
"""

from dataclasses import dataclass
from math import gcd
from pathlib import Path

from deepinfer_nvidia.kernels.tuning import KernelTuning

__all__ = ["SHARED_BYTES", "RingTuning", "sources"]

SHARED_BYTES = 227 * 1024
"""Shared memory that a block of Hopper can have; a core has 1024 more for each block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RingTuning(KernelTuning):
    """How the work is cut.

    Attributes:
        groups: warp groups that multiply.
        tiles: tiles of 64 rows that each of them owns.
        channels: channels of a tile, 8 to 256.
        stages: stages of 64 inputs in shared memory.
        down: tiles of rows in a cluster.
        across: tiles of channels in a cluster.
        row_box: rows of one copy; rows that do not exist cost time, so small tiles have small ones.
    """

    groups: int = 2
    tiles: int = 1
    channels: int
    stages: int
    down: int = 1
    across: int = 1
    row_box: int = 64

    @property
    def rows(self) -> int:
        """Of a tile."""
        return self.groups * self.tiles * 64

    @property
    def ring_bytes(self) -> int:
        """Stages and their barriers."""
        return self.stages * ((self.rows + self.channels) * 128 + 16)

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
