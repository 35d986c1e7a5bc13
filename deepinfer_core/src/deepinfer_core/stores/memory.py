"""How are blocks kept in the memory of one process?

As records, so that a block which changes in memory is found like one that changes on a disk. Room
is made from the blocks that were used longest ago. For machines without a disk to spare, as the
upper tier of another store, and for tests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from deepinfer_core.interfaces.kv_store import (
    BlockGroup,
    KvStore,
    Outcome,
    StoreCapabilities,
    StoreItem,
    StoreReport,
)
from deepinfer_core.stores.calls import (
    CLOSED,
    EXISTS,
    HIT,
    LATE,
    MISS,
    STORED,
    Tally,
    group_named,
    groups_by_name,
    in_order,
    is_late,
    require_class,
    require_destinations,
    require_items,
    require_keys,
)
from deepinfer_core.stores.records import pack_record, read_block
from deepinfer_core.stores.retention import Limits, LimitsOptions, limits_of
from deepinfer_core.stores.shelf import Shelf

if TYPE_CHECKING:
    from deepinfer_core.plugin import BuildContext

__all__ = ["MemoryStore", "build"]

_SWEPT_AT_ONCE = 256
"""Blocks that a sweep removes before others get their turn."""


class MemoryStore(KvStore):
    """A dictionary with limits.

    Args:
        limits: what may be kept.
        clock: seconds that only grow, for ages.
    """

    def __init__(self, limits: Limits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._lock = threading.Lock()
        self._groups: dict[str, BlockGroup] = {}
        self._tally = Tally()
        self._shelf: Shelf[bytes] = Shelf(limits, clock, self._tally)

    @property
    def capabilities(self) -> StoreCapabilities:
        """It ends with the process."""
        return StoreCapabilities(
            is_persistent=False,
            is_zero_copy=False,
            batch_blocks=16,
            max_block_bytes=self._limits.low_bytes,
        )

    @property
    def groups(self) -> Mapping[str, BlockGroup]:
        """What it was opened for."""
        return self._groups

    def open(self, groups: Sequence[BlockGroup]) -> None:
        """Start empty."""
        found = groups_by_name(groups, self._limits)
        with self._lock:
            if self._groups:
                raise ValueError("the store is open")
            self._groups, self._tally = found, Tally()
            self._shelf = Shelf(self._limits, self._clock, self._tally)

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            self._groups = {}
            self._shelf = Shelf(self._limits, self._clock, self._tally)

    def find(self, group: str, keys: Sequence[bytes], *, deadline_s: float) -> list[Outcome]:
        """Look blocks up."""
        if not self._groups:
            return [CLOSED] * len(keys)
        group_named(self._groups, group)
        require_keys(keys)
        if is_late(deadline_s):
            return [LATE] * len(keys)
        with self._lock:
            return [HIT if self._shelf.get((group, key)) else MISS for key in keys]

    def load(
        self,
        group: str,
        keys: Sequence[bytes],
        destinations: Sequence[bytearray | memoryview],
        *,
        deadline_s: float,
    ) -> list[Outcome]:
        """Copy blocks out, each checked on the way."""
        groups = self._groups
        if not groups:
            return self._tally.count([CLOSED] * len(keys))
        known = group_named(groups, group)
        require_keys(keys)
        require_destinations(known, keys, destinations)
        return self._tally.count(
            [
                LATE if is_late(deadline_s) else self._load(known, key, destination)
                for key, destination in zip(keys, destinations, strict=True)
            ]
        )

    def store(self, group: str, items: Sequence[StoreItem], *, deadline_s: float) -> list[Outcome]:
        """Keep copies of blocks."""
        groups = self._groups
        if not groups:
            return self._tally.count([CLOSED] * len(items))
        known = group_named(groups, group)
        require_items(known, items, self._limits)
        return self._tally.count(in_order(items, lambda item: self._store(known, item), deadline_s))

    def touch(self, group: str, keys: Sequence[bytes], *, retention: str = "") -> None:
        """Count blocks as used."""
        if not self._groups:
            return
        group_named(self._groups, group)
        require_keys(keys)
        require_class(retention, self._limits)
        with self._lock:
            for key in keys:
                self._shelf.use((group, key), retention)

    def drop(self, namespace: bytes | None = None) -> int:
        """Remove blocks of a namespace, or all."""
        with self._lock:
            return self._shelf.remove_namespace(namespace)

    def sweep(self, *, deadline_s: float) -> int:
        """Remove what has expired, then make room if more than the upper mark is taken."""
        removed, more = 0, _SWEPT_AT_ONCE
        while more == _SWEPT_AT_ONCE and not is_late(deadline_s):
            with self._lock:
                more = self._shelf.remove_expired(_SWEPT_AT_ONCE)
            removed += more
        with self._lock:
            return removed + self._shelf.make_room()

    def report(self) -> StoreReport:
        """What there is to tell."""
        with self._lock:
            return StoreReport(
                records=len(self._shelf),
                used_bytes=self._shelf.used_bytes,
                capacity_bytes=self._limits.capacity_bytes,
                outcomes=self._tally.outcomes(),
                removed=self._tally.removed(),
                problem="" if self._groups else CLOSED.reason,
            )

    def _load(self, group: BlockGroup, key: bytes, destination: bytearray | memoryview) -> Outcome:
        address = (group.name, key)
        with self._lock:
            kept = self._shelf.get(address)
        if kept is None:
            return MISS
        block = read_block(memoryview(kept.record), group, key)
        with self._lock:
            if self._shelf.get(address) is kept:
                if isinstance(block, Outcome):
                    self._shelf.remove([address], "damaged")
                else:
                    self._shelf.use(address)
        if isinstance(block, Outcome):
            return block
        destination[:] = block
        return HIT

    def _store(self, group: BlockGroup, item: StoreItem) -> Outcome:
        address = (group.name, item.key)
        with self._lock:
            if self._shelf.use(address, item.retention):
                return EXISTS
        record = pack_record(group, item, time.time())
        with self._lock:
            if not self._groups:
                return CLOSED
            if self._shelf.use(address, item.retention):
                return EXISTS
            problem = self._shelf.put(
                address,
                record,
                namespace=item.namespace,
                depth=item.depth,
                retention=item.retention or group.retention,
            )
        return problem or STORED


def build(options: LimitsOptions, context: BuildContext) -> MemoryStore:
    """Build the component; noting a use costs next to nothing, so every one is."""
    return MemoryStore(limits_of(options, age_step_s=60.0, refresh_ratio=0.0))
