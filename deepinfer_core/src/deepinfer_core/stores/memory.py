"""How are blocks kept in the memory of one process?

As records, so that a block which changes in memory is found like one that changes on a disk. Room
is made from the blocks that were used longest ago. For machines without a disk to spare, as the
upper tier of another store, and for tests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from deepinfer_core.interfaces.kv_store import (
    BlockGroup,
    Buffer,
    Lent,
    Outcome,
    StoreCapabilities,
    StoreItem,
    StoreReport,
)
from deepinfer_core.interfaces.kv_upkeep import BlockFacts
from deepinfer_core.stores.calls import (
    CLOSED,
    EXISTS,
    HIT,
    LATE,
    MISS,
    STORED,
    Tally,
    groups_by_name,
    in_order,
    is_late,
)
from deepinfer_core.stores.guarded import GuardedStore
from deepinfer_core.stores.record_reader import RecordReader
from deepinfer_core.stores.records import RecordPacker
from deepinfer_core.stores.retention import Limits, LimitsOptions, limits_of
from deepinfer_core.stores.shelf import Address, Shelf

if TYPE_CHECKING:
    from deepinfer_core.plugin import BuildContext

__all__ = ["MemoryStore", "build"]

Taken = TypeVar("Taken")

_SWEPT_AT_ONCE = 256
"""Blocks that a sweep removes before others get their turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """What there is only while the store is open."""

    groups: Mapping[str, BlockGroup]
    shelf: Shelf[bytes]


class MemoryStore(GuardedStore[_Opened]):
    """A dictionary with limits.

    Args:
        limits: what may be kept.
        clock: seconds that only grow, for ages.
    """

    def __init__(self, limits: Limits, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(limits)
        self._limits, self._clock = limits, clock
        self._lock = threading.Lock()

    @property
    def capabilities(self) -> StoreCapabilities:
        """It ends with the process."""
        return StoreCapabilities(
            is_persistent=False,
            is_zero_copy=True,
            batch_blocks=16,
            max_block_bytes=self._limits.low_bytes,
        )

    def drop(self, namespace: bytes | None = None) -> int:
        """Remove blocks of a namespace, or all."""
        opened = self._opened
        if opened is None:
            return 0
        with self._lock:
            return opened.shelf.remove_namespace(namespace)

    def report(self) -> StoreReport:
        """What there is to tell."""
        opened = self._opened
        with self._lock:
            return StoreReport(
                records=len(opened.shelf) if opened else 0,
                used_bytes=opened.shelf.used_bytes if opened else 0,
                capacity_bytes=self._limits.capacity_bytes,
                high_bytes=self._limits.high_bytes,
                outcomes=self._tally.outcomes(),
                removed=self._tally.removed(),
                ages=self._tally.ages(),
                problem="" if opened else CLOSED.reason,
            )

    def _start(self, groups: Sequence[BlockGroup], tally: Tally) -> _Opened:
        found = groups_by_name(groups, self._limits)
        return _Opened(groups=found, shelf=Shelf(self._limits, self._clock, tally))

    def _stop(self, opened: _Opened) -> None:
        """What calls go on with goes when they end."""

    def _find(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], deadline_s: float
    ) -> list[Outcome]:
        with self._lock:
            return [HIT if opened.shelf.get((group.name, key)) else MISS for key in keys]

    def _load(
        self,
        opened: _Opened,
        group: BlockGroup,
        keys: Sequence[bytes],
        destinations: Sequence[bytearray | memoryview],
        deadline_s: float,
        *,
        is_use: bool,
    ) -> list[Outcome]:
        reader = RecordReader(group)
        outcomes: list[Outcome] = []
        for key, destination in zip(keys, destinations, strict=True):

            def copy(record: memoryview, key: bytes, to: Buffer = destination) -> Outcome:
                return reader.copy(record, key, to) or HIT

            address = (group.name, key)
            outcomes.append(self._take(opened, address, copy, deadline_s, is_use=is_use))
        return outcomes

    def _lend(
        self,
        stack: ExitStack,
        opened: _Opened,
        group: BlockGroup,
        keys: Sequence[bytes],
        deadline_s: float,
    ) -> list[Lent]:
        """Show records themselves: one that goes meanwhile lives until it is given back."""
        view = RecordReader(group).view
        found = [
            self._take(opened, (group.name, key), view, deadline_s, is_use=True) for key in keys
        ]
        return [
            Lent(outcome=one) if isinstance(one, Outcome) else Lent(outcome=HIT, data=one)
            for one in found
        ]

    def _store(
        self, opened: _Opened, group: BlockGroup, items: Sequence[StoreItem], deadline_s: float
    ) -> list[Outcome]:
        packer = RecordPacker(group)
        return in_order(items, lambda item: self._keep(opened, group, item, packer), deadline_s)

    def _touch(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], retention: str
    ) -> None:
        with self._lock:
            for key in keys:
                opened.shelf.use((group.name, key), retention)

    def _describe(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], deadline_s: float
    ) -> list[BlockFacts | None]:
        with self._lock:
            return [opened.shelf.facts_of((group.name, key)) for key in keys]

    def _survey(
        self, opened: _Opened, group: BlockGroup, after: bytes, most: int, deadline_s: float
    ) -> list[BlockFacts]:
        with self._lock:
            return opened.shelf.behind(group.name, after, most)

    def _discard(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], deadline_s: float
    ) -> int:
        addresses = [(group.name, key) for key in dict.fromkeys(keys)]
        with self._lock:
            there = [address for address in addresses if opened.shelf.get(address)]
            return opened.shelf.remove(there, "discarded")

    def _sweep(self, opened: _Opened, deadline_s: float) -> int:
        """Remove what has expired, then make room if more than the upper mark is taken."""
        removed, more = 0, _SWEPT_AT_ONCE
        while more == _SWEPT_AT_ONCE and not is_late(deadline_s):
            with self._lock:
                more = opened.shelf.remove_expired(_SWEPT_AT_ONCE)
            removed += more
        with self._lock:
            return removed + opened.shelf.make_room()

    def _take(
        self,
        opened: _Opened,
        address: Address,
        take: Callable[[memoryview, bytes], Taken | Outcome],
        deadline_s: float,
        *,
        is_use: bool,
    ) -> Taken | Outcome:
        """Take a block out of its record, if that is whole."""
        if is_late(deadline_s):
            return LATE
        with self._lock:
            kept = opened.shelf.get(address)
        if kept is None:
            return MISS
        found = take(memoryview(kept.record), address[1])
        is_whole = found is HIT or not isinstance(found, Outcome)
        with self._lock:
            if (is_use or not is_whole) and opened.shelf.get(address) is kept:
                if is_whole:
                    opened.shelf.use(address)
                else:
                    opened.shelf.remove([address], "damaged")
        return found

    def _keep(
        self, opened: _Opened, group: BlockGroup, item: StoreItem, packer: RecordPacker
    ) -> Outcome:
        address = (group.name, item.key)
        with self._lock:
            if opened.shelf.use(address, item.retention):
                return EXISTS
        record = bytes(packer.pack(item, time.time()))
        with self._lock:
            if self._opened is not opened:
                return CLOSED
            if opened.shelf.use(address, item.retention):
                return EXISTS
            problem = opened.shelf.put(
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
