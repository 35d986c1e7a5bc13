"""Which requests have run out of the time that they gave themselves?"""

from __future__ import annotations

import heapq
from collections.abc import Callable

__all__ = ["Deadlines"]

_SLACK = 64
"""Entries of ended requests that are kept in any case, so that few are not sought out often."""


class Deadlines:
    """Points in time, the next one first.

    Requests that ended otherwise are forgotten once they are more than those in work, so memory and
    the time for one entry stay in proportion to what is in work.

    Args:
        is_in_work: whether a sequence has not ended.
    """

    def __init__(self, is_in_work: Callable[[int], bool]) -> None:
        self._is_in_work = is_in_work
        self._heap: list[tuple[float, int]] = []
        self._most = _SLACK

    def __len__(self) -> int:
        """Entries, those of some ended requests included."""
        return len(self._heap)

    def add(self, deadline_s: float, sequence_id: int) -> None:
        """Remember when a sequence is to have ended.

        Args:
            deadline_s: on the clock of ``due``.
            sequence_id: its number.
        """
        heapq.heappush(self._heap, (deadline_s, sequence_id))
        if len(self._heap) > self._most:
            self._heap = [entry for entry in self._heap if self._is_in_work(entry[1])]
            heapq.heapify(self._heap)
            self._most = 2 * len(self._heap) + _SLACK

    def due(self, now_s: float) -> list[int]:
        """Take out the sequences that are in work and should have ended, the most overdue first."""
        found = []
        while self._heap and self._heap[0][0] <= now_s:
            _, number = heapq.heappop(self._heap)
            if self._is_in_work(number):
                found.append(number)
        return found

    def clear(self) -> None:
        """Forget all."""
        self._heap.clear()
        self._most = _SLACK
