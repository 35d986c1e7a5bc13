"""Which store loses some of its blocks, or damages them, as chance will have it?"""

from __future__ import annotations

import random
from collections.abc import Sequence

from deepinfer_core.interfaces.kv_store import KvStore, Outcome
from deepinfer_core.testing.faulty_store import FaultyStore

__all__ = ["LossyStore"]


class LossyStore(FaultyStore):
    """Another store, some of whose blocks are now and then missing or damaged.

    Args:
        store: keeps the blocks.
        draw: random numbers.

    Attributes:
        lost: share of the blocks that are missing each time that they are looked for or read.
        damaged: share of those that are damaged, which shows only when they are read.
        faults: blocks that were lost or damaged.
    """

    def __init__(self, store: KvStore, draw: random.Random) -> None:
        super().__init__(store)
        self.lost = self.damaged = 0.0
        self.faults = 0
        self._draw = draw

    def find(self, group: str, keys: Sequence[bytes], *, deadline_s: float) -> list[Outcome]:
        """Lose some, and look for the rest."""
        found = super().find(group, keys, deadline_s=deadline_s)
        return [self._befallen(outcome, "miss") for outcome in found]

    def load(
        self,
        group: str,
        keys: Sequence[bytes],
        destinations: Sequence[bytearray | memoryview],
        *,
        deadline_s: float,
    ) -> list[Outcome]:
        """Lose or damage some, and read the rest."""
        found = super().load(group, keys, destinations, deadline_s=deadline_s)
        outcomes = [self._befallen(self._befallen(one, "miss"), "corrupt") for one in found]
        for outcome, destination in zip(outcomes, destinations, strict=True):
            if outcome.status != "hit":
                destination[:] = b"\xa5" * len(destination)
        return outcomes

    def _befallen(self, outcome: Outcome, status: str) -> Outcome:
        share = self.lost if status == "miss" else self.damaged
        if outcome.status != "hit" or self._draw.random() >= share:
            return outcome
        self.faults += 1
        if status == "miss":
            return Outcome(status="miss", reason="lost on purpose")
        return Outcome(status="corrupt", reason="damaged on purpose")
