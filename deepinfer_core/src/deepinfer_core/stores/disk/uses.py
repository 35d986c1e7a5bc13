"""Which uses of blocks are not written yet?

Uses are noted in memory and written with the next blocks, so that reading never waits for the disk.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from deepinfer_core.stores.disk.clock import Clock
from deepinfer_core.stores.disk.index import Index
from deepinfer_core.stores.record_reader import StoredUnder
from deepinfer_core.stores.records import padded
from deepinfer_core.stores.retention import Limits

if TYPE_CHECKING:
    import lmdb

__all__ = ["Uses"]

_MOST_USES = 1 << 16
"""Uses that wait to be written; more are forgotten."""


class Uses:
    """Uses that wait.

    Args:
        index: of the blocks.
        limits: what may be kept.
        clock: for ages.
    """

    def __init__(self, index: Index, limits: Limits, clock: Clock) -> None:
        self._index, self._limits, self._clock = index, limits, clock
        self._uses: dict[bytes, tuple[str, float]] = {}
        self._lock = threading.Lock()
        self._quiet_s = {
            padded(name): seconds * limits.refresh_ratio
            for name, seconds in limits.retention_s.items()
        }

    def note(self, address: bytes, retention: str = "") -> None:
        """Remember a use until something is written."""
        with self._lock:
            if len(self._uses) < _MOST_USES:
                before = self._uses.get(address, (retention, 0.0))[0]
                longer = self._limits.longer(retention, before)
                self._uses[address] = longer, self._clock.wall()

    def now_s(self) -> float:
        """Seconds since 1970, for ``note_read``."""
        return self._clock.wall()

    def note_read(
        self, txn: lmdb.Transaction[memoryview], address: bytes, stored: StoredUnder, now_s: float
    ) -> None:
        """Remember a use that was seen in a transaction, if one is due.

        None is due of a record that was stored a short time ago, whatever its facts say: it was
        used then or later, and its class is now what it was or one that keeps it longer.
        """
        retention, written_s = stored
        if now_s - written_s < self._quiet_s.get(retention, 0.0):
            return
        facts = self._index.facts_of(txn, address)
        if facts is not None and self._index.is_use_due(facts, "", now_s):
            self.note(address)

    def take(self) -> Mapping[bytes, tuple[str, float]]:
        """Class and time of uses by address; they wait no longer."""
        with self._lock:
            uses, self._uses = self._uses, {}
        return uses
