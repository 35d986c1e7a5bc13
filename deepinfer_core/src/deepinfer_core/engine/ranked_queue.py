"""In which order do sequences stand, and how is one found among many?"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from operator import attrgetter

from deepinfer_core.engine.sequence import Sequence

__all__ = ["RankedQueue"]

_RANK = attrgetter("rank")


class RankedQueue:
    """Sequences by rank, the first one first. No two ranks are equal."""

    def __init__(self) -> None:
        self._items: list[Sequence] = []

    def __len__(self) -> int:
        """Sequences in the queue."""
        return len(self._items)

    def __iter__(self) -> Iterator[Sequence]:
        """In order of rank."""
        return iter(self._items)

    def add(self, sequence: Sequence) -> None:
        """Let a sequence take its place."""
        insort(self._items, sequence, key=_RANK)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out; it must be in."""
        place = bisect_left(self._items, sequence.rank, key=_RANK)
        assert self._items[place] is sequence
        del self._items[place]
