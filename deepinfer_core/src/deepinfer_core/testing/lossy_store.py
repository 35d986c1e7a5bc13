"""Which store loses blocks, lies about them, or stands still, as a test wishes?"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence

from deepinfer_core.interfaces.kv_store import (
    BlockGroup,
    KvStore,
    Outcome,
    StoreCapabilities,
    StoreItem,
    StoreReport,
)

__all__ = ["LossyStore"]


class LossyStore(KvStore):
    """Another store, some of whose blocks are now and then missing or damaged.

    Args:
        store: keeps the blocks.
        draw: random numbers.

    Attributes:
        lost: share of the blocks that are missing each time that they are looked for or read.
        damaged: share of those that are damaged, which shows only when they are read.
        may_go_on: calls wait while this is cleared, past any deadline.
        faults: blocks that were lost or damaged.
    """

    def __init__(self, store: KvStore, draw: random.Random) -> None:
        self.lost = self.damaged = 0.0
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.faults = 0
        self._store = store
        self._draw = draw

    @property
    def capabilities(self) -> StoreCapabilities:
        """Of the other store."""
        return self._store.capabilities

    @property
    def groups(self) -> Mapping[str, BlockGroup]:
        """Of the other store."""
        return self._store.groups

    def open(self, groups: Sequence[BlockGroup]) -> None:
        """Open the other store."""
        self._store.open(groups)

    def close(self) -> None:
        """Close the other store."""
        self._store.close()

    def find(self, group: str, keys: Sequence[bytes], *, deadline_s: float) -> list[Outcome]:
        """Lose some, and look for the rest."""
        self.may_go_on.wait()
        found = self._store.find(group, keys, deadline_s=deadline_s)
        return [self._spoilt(outcome, "miss") for outcome in found]

    def load(
        self,
        group: str,
        keys: Sequence[bytes],
        destinations: Sequence[bytearray | memoryview],
        *,
        deadline_s: float,
    ) -> list[Outcome]:
        """Lose or damage some, and read the rest."""
        self.may_go_on.wait()
        found = self._store.load(group, keys, destinations, deadline_s=deadline_s)
        outcomes = [self._spoilt(self._spoilt(one, "miss"), "corrupt") for one in found]
        for outcome, destination in zip(outcomes, destinations, strict=True):
            if outcome.status != "hit":
                destination[:] = b"\xa5" * len(destination)
        return outcomes

    def store(self, group: str, items: Sequence[StoreItem], *, deadline_s: float) -> list[Outcome]:
        """Keep blocks."""
        self.may_go_on.wait()
        return self._store.store(group, items, deadline_s=deadline_s)

    def touch(self, group: str, keys: Sequence[bytes], *, retention: str = "") -> None:
        """Count blocks as used."""
        self._store.touch(group, keys, retention=retention)

    def drop(self, namespace: bytes | None = None) -> int:
        """Remove blocks."""
        return self._store.drop(namespace)

    def sweep(self, *, deadline_s: float) -> int:
        """Remove what has expired."""
        return self._store.sweep(deadline_s=deadline_s)

    def report(self) -> StoreReport:
        """Of the other store."""
        return self._store.report()

    def _spoilt(self, outcome: Outcome, status: str) -> Outcome:
        share = self.lost if status == "miss" else self.damaged
        if outcome.status != "hit" or self._draw.random() >= share:
            return outcome
        self.faults += 1
        if status == "miss":
            return Outcome(status="miss", reason="lost on purpose")
        return Outcome(status="corrupt", reason="damaged on purpose")
