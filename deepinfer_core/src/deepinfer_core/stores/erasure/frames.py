"""Where do fragments lie between the children and the block?

Memory for all fragments of some blocks, which is used again once no child can write into it any
more: a child that is late may do so long after everybody has what they wanted.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from deepinfer_core.stores.erasure.field import Bytes
from deepinfer_core.stores.erasure.fragments import FRAGMENT_HEADER_BYTES, Shape

__all__ = ["FramePool", "Frames"]

_KEPT = 4
"""Pieces of memory of one size that wait to be used again."""

_Size = tuple[int, int, int]
"""Blocks, fragments of each, bytes of each of those."""


class _Memory:
    """Memory for the fragments of some blocks, and a view of each, which are made once."""

    def __init__(self, size: _Size) -> None:
        blocks, count, length = self.size = size
        self.fragments_WNB: Bytes = np.empty(size, np.uint8)
        whole = self.fragments_WNB.data.cast("B")
        views = [whole[at : at + length] for at in range(0, len(whole), length)]
        self.views = [views[at * count : (at + 1) * count] for at in range(blocks)]


class FramePool:
    """Memory that is not in use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: dict[_Size, list[_Memory]] = {}

    def lease(self, shape: Shape, blocks: int) -> Frames:
        """Memory for the fragments of so many blocks; its content is undefined."""
        size = (blocks, shape.count, shape.fragment_bytes)
        with self._lock:
            free = self._free.get(size)
            memory = free.pop() if free else None
        return Frames(self, memory or _Memory(size))

    def give_back(self, memory: _Memory) -> None:
        """It is in use no more."""
        with self._lock:
            free = self._free.setdefault(memory.size, [])
            if len(free) < _KEPT:
                free.append(memory)


class Frames:
    """Fragments of some blocks.

    Args:
        pool: gets the memory back.
        memory: theirs until then.
    """

    def __init__(self, pool: FramePool, memory: _Memory) -> None:
        self._pool, self._memory = pool, memory
        self._lock = threading.Lock()
        self._users = 1

    def fragments(self, place: int) -> Sequence[memoryview]:
        """The fragments of one block, writable."""
        return self._memory.views[place]

    def pieces(self, place: int) -> Bytes:
        """The pieces of a block without headers, a row each."""
        pieces_NF: Bytes = self._memory.fragments_WNB[place, :, FRAGMENT_HEADER_BYTES:]
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
            self._pool.give_back(self._memory)
