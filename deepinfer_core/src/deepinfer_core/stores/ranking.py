"""Which of many things has the smallest rank now, while ranks change and things go?"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

__all__ = ["Ranking"]

Thing = TypeVar("Thing")
Rank = TypeVar("Rank")


class Ranking(Generic[Thing, Rank]):
    """A heap in which an outdated entry stays until it comes up, or until most are outdated."""

    def __init__(self) -> None:
        self._heap: list[tuple[Rank, Thing]] = []
        self._rank_of: dict[Thing, Rank] = {}

    def __len__(self) -> int:
        return len(self._rank_of)

    def put(self, thing: Thing, rank: Rank) -> None:
        """Give a thing a rank, in place of the one it had."""
        if self._rank_of.get(thing) == rank:
            return
        self._rank_of[thing] = rank
        heappush(self._heap, (rank, thing))
        if len(self._heap) > 2 * len(self._rank_of) + 64:
            self._heap = [(rank, thing) for thing, rank in self._rank_of.items()]
            heapify(self._heap)

    def discard(self, thing: Thing) -> None:
        """Forget a thing, if it is known."""
        self._rank_of.pop(thing, None)

    def first(self) -> tuple[Thing, Rank] | None:
        """The thing with the smallest rank; None if there is none."""
        while self._heap:
            rank, thing = self._heap[0]
            if self._rank_of.get(thing) == rank:
                return thing, rank
            heappop(self._heap)
        return None

    def pop(self) -> tuple[Thing, Rank] | None:
        """The same, which is then forgotten."""
        found = self.first()
        if found is not None:
            self.discard(found[0])
        return found
