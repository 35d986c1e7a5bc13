"""Why did blocks go from a store, and for how long had they been unused?"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict

from deepinfer_core.interfaces.kv_upkeep import Departed
from deepinfer_core.interfaces.store_report import AGE_BOUNDS_S, EvictedAges

__all__ = ["Removals"]

_AGED = frozenset({"expired", "room", "quota"})
"""Reasons for which blocks go because of when they were used last."""


class Removals:
    """Blocks that one change of a store removes; counted once the change is made.

    Attributes:
        blocks: how many, by reason.
        departed: those that the store let go by itself, one by one.
    """

    def __init__(self) -> None:
        self.blocks: Counter[str] = Counter()
        self.departed: list[Departed] = []
        self._ages: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._total_s: defaultdict[str, float] = defaultdict(float)

    def add(self, reason: str, unused_s: float, group: str, key: bytes) -> None:
        """One more.

        Args:
            reason: as of ``StoreReport.removed``.
            unused_s: since its last use; of no account unless it goes for its age.
            group: its name.
            key: of the block.
        """
        self.blocks[reason] += 1
        if reason in _AGED:
            self.departed.append(Departed(group, key, reason))
            age_s = max(unused_s, 0.0)
            self._ages[reason][bisect_left(AGE_BOUNDS_S, age_s)] += 1
            self._total_s[reason] += age_s

    def join(self, others: Removals) -> None:
        """And the numbers of another change."""
        self.blocks.update(others.blocks)
        for reason, ages in others._ages.items():
            self._ages[reason].update(ages)
            self._total_s[reason] += others._total_s[reason]

    def ages(self) -> dict[str, EvictedAges]:
        """Ages by reason, as a report tells them."""
        places = range(len(AGE_BOUNDS_S) + 1)
        return {
            reason: EvictedAges(
                counts=tuple(ages[place] for place in places), total_s=self._total_s[reason]
            )
            for reason, ages in self._ages.items()
        }
