"""Where do records lie in a lane's memory?"""

from __future__ import annotations

from dataclasses import dataclass

from deepinfer_core.interfaces.kv_store import BlockGroup
from deepinfer_core.stores.records import record_bytes

__all__ = ["BATCH_BLOCKS", "Places", "places_of"]

BATCH_BLOCKS = 64
"""Blocks in a call; more of them make it longer, not faster."""

_ALIGNMENT_BYTES = 64
"""A cache line; records then begin where those of other stores do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Of records of one group.

    Attributes:
        record_bytes: of each.
        stride_bytes: from one to the next.
        count: records in a lane.
    """

    record_bytes: int
    stride_bytes: int
    count: int

    def at(self, records: int) -> list[int]:
        """Where so many begin."""
        return list(range(0, records * self.stride_bytes, self.stride_bytes))


def places_of(group: BlockGroup, lane_bytes: int) -> Places:
    """Places of records of a group; none if a lane is too small."""
    size = record_bytes(group)
    stride = -(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
    return Places(
        record_bytes=size, stride_bytes=stride, count=min(BATCH_BLOCKS, lane_bytes // stride)
    )
