"""Where do fragments lie between the children and the block?

Memory for all fragments of some blocks, which is used again once no child can write into it any
more: a child that is late may do so long after everybody has what they wanted.
"""

from __future__ import annotations

import threading

import numpy as np

from deepinfer_core.stores.erasure.field import Bytes
from deepinfer_core.stores.erasure.fragments import FRAGMENT_HEADER_BYTES, Shape

__all__ = ["FramePool", "Frames"]

_KEPT = 4
"""Pieces of memory of one size that wait to be used again."""


class FramePool:
    """Memory that is not in use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: dict[tuple[int, int, int], list[Bytes]] = {}

    def lease(self, shape: Shape, blocks: int) -> Frames:
        """Memory for the fragments of so many blocks; its content is undefined."""
        size = (blocks, shape.count, shape.fragment_bytes)
        with self._lock:
            free = self._free.get(size)
            memory_WNB = free.pop() if free else None
        return Frames(self, np.empty(size, np.uint8) if memory_WNB is None else memory_WNB)

    def give_back(self, memory_WNB: Bytes) -> None:
        """It is in use no more."""
        blocks, count, size = memory_WNB.shape
        with self._lock:
            free = self._free.setdefault((blocks, count, size), [])
            if len(free) < _KEPT:
                free.append(memory_WNB)


class Frames:
    """Fragments of some blocks.

    Args:
        pool: gets the memory back.
        memory_WNB: a row for each fragment of each block.
    """

    def __init__(self, pool: FramePool, memory_WNB: Bytes) -> None:
        self._pool, self.memory_WNB = pool, memory_WNB
        self._bytes = memory_WNB.data.cast("B")
        self._lock = threading.Lock()
        self._users = 1

    def fragment(self, place: int, row: int) -> memoryview:
        """One fragment, writable."""
        _, count, size = self.memory_WNB.shape
        start = (place * count + row) * size
        return self._bytes[start : start + size]

    def pieces(self, place: int) -> Bytes:
        """The pieces of a block without headers, a row each."""
        pieces_NF: Bytes = self.memory_WNB[place, :, FRAGMENT_HEADER_BYTES:]
        return pieces_NF

    def hold(self) -> None:
        """Count one more who uses the memory; whoever leases it is the first."""
        with self._lock:
            self._users += 1

    def release(self) -> None:
        """Count one less; the last gives it back."""
        with self._lock:
            self._users -= 1
            is_free = not self._users
        if is_free:
            self._pool.give_back(self.memory_WNB)
