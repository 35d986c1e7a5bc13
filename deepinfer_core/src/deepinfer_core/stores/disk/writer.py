"""How does the one process that writes keep, renew and remove blocks?

All that belongs together is one transaction. Room is made by the books, in the transaction that
needs it; pages that it frees serve the next but one, and the map has a tenth more of them than the
books allow. So the map is full only while readers hold pages back, the dead ones for no longer than
until somebody looks for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager

from deepinfer_core.errors import EngineError
from deepinfer_core.interfaces.kv_store import BlockGroup, Outcome, StoreItem
from deepinfer_core.stores.calls import (
    EXISTS,
    FULL,
    LATE,
    OVER_QUOTA,
    STORED,
    Tally,
    in_order,
    is_late,
)
from deepinfer_core.stores.disk.clock import Clock, ClockWatch
from deepinfer_core.stores.disk.environment import RENEW, Environment, NoRoom, NotNow, Unusable
from deepinfer_core.stores.disk.filing import Filing, filing
from deepinfer_core.stores.disk.index import Index, address_of
from deepinfer_core.stores.disk.uses import Uses
from deepinfer_core.stores.record_reader import RecordReader
from deepinfer_core.stores.records import RecordPacker, record_bytes
from deepinfer_core.stores.removals import Removals
from deepinfer_core.stores.retention import Limits

__all__ = ["Writer"]

_BLOCKS_AT_ONCE = 64
"""Blocks of one transaction: more gain nothing, and others wait."""

_REMOVED_AT_ONCE = 256

_DROPPED_AT_ONCE = 8192
"""A tenth of a second; what one transaction frees lies together, and is written again sooner."""


class Writer:
    """What changes a store.

    Args:
        environment: open for writing.
        index: its tables.
        limits: what may be kept.
        clock: for ages.
        tally: counts what is removed.

    Attributes:
        uses: that are written with the next blocks.
    """

    def __init__(
        self, environment: Environment, index: Index, limits: Limits, clock: Clock, tally: Tally
    ) -> None:
        self._environment, self._index, self._limits = environment, index, limits
        self._clock, self._tally = clock, tally
        self.uses = Uses(index, limits, clock)
        with environment.reading() as txn:
            self._watch = ClockWatch(clock, index.last_sweep_s(txn))

    def keep(
        self, group: BlockGroup, items: Sequence[StoreItem], deadline_s: float
    ) -> list[Outcome]:
        """Store blocks, some at a time."""
        outcomes: list[Outcome] = []
        for start in range(0, len(items), _BLOCKS_AT_ONCE):
            outcomes += self._keep_some(group, items[start : start + _BLOCKS_AT_ONCE], deadline_s)
            if outcomes[-1].status not in ("stored", "exists"):
                break
        return outcomes + outcomes[-1:] * (len(items) - len(outcomes))

    def remove_damaged(self, group: BlockGroup, keys: Sequence[bytes], deadline_s: float) -> None:
        """Remove records that are not what they should be, if there is time."""
        removed = 0
        try:
            with self._filing(deadline_s) as tables:
                for key in keys:
                    address = address_of(group.name, key)
                    record = tables.record(address)
                    if record is not None:
                        found = RecordReader(group).view(record, key)
                        if isinstance(found, Outcome):
                            removed += tables.remove(address) is not None
        except Unusable:
            return
        self._tally.remove("damaged", removed)

    def discard(self, group: BlockGroup, keys: Sequence[bytes], deadline_s: float) -> int:
        """Remove single records, if there is time; how many."""
        counts = Removals()
        addresses = [address_of(group.name, key) for key in keys]
        try:
            with self._filing(deadline_s) as tables:
                self._remove(tables, addresses, counts, "discarded")
        except Unusable:
            return 0
        return self._tally.remove_all(counts)

    def sweep(self, deadline_s: float) -> int:
        """Remove what has expired, then make room if more than the upper mark is taken."""
        self._environment.forget_dead_readers()
        may_expire, removed, is_high = self._watch.is_steady(), 0, False
        more = True
        while more and not is_late(deadline_s):
            counts = Removals()
            try:
                with self._filing(deadline_s) as tables:
                    self._write_uses(tables)
                    now_s = self._clock.wall()
                    tables.note_sweep(now_s)
                    if may_expire:
                        self._remove(
                            tables,
                            tables.expired(now_s, _REMOVED_AT_ONCE),
                            counts,
                            "expired",
                        )
                    used_bytes = tables.used_bytes()
                    is_high = is_high or used_bytes > self._limits.high_bytes
                    if is_high:
                        over = used_bytes - self._limits.low_bytes
                        self._free(tables, over, counts, "room", most=_REMOVED_AT_ONCE)
            except Unusable:
                break
            more = max(counts.blocks.values(), default=0) == _REMOVED_AT_ONCE
            removed += self._tally.remove_all(counts)
        return removed

    def drop(self, namespace: bytes | None) -> int:
        """Remove all records of a namespace, or all.

        Raises:
            EngineError: not all could be removed.
        """
        removed, more = 0, True
        while more:
            counts = Removals()
            try:
                with self._filing(math.inf) as tables:
                    found = tables.of_namespace(namespace, _DROPPED_AT_ONCE)
                    self._remove(tables, found, counts, "dropped")
            except Unusable as error:
                raise EngineError(
                    f"asked to drop blocks, found the store unusable after {removed}: {error}",
                    hint=RENEW
                    if self._environment.damage
                    else "drop them again once it can be written to",
                ) from error
            more = len(found) == _DROPPED_AT_ONCE
            removed += self._tally.remove_all(counts)
        return removed

    def _keep_some(
        self, group: BlockGroup, items: Sequence[StoreItem], deadline_s: float
    ) -> list[Outcome]:
        """All of one transaction; once more if pages may have been held back by nobody."""
        try:
            try:
                return self._try_to_keep(group, items, deadline_s)
            except NoRoom:
                self._environment.forget_dead_readers()
                return self._try_to_keep(group, items, deadline_s)
        except NoRoom:
            outcome = FULL
        except NotNow:
            outcome = LATE
        except Unusable as error:
            outcome = Outcome(status="unavailable", reason=str(error))
        return [outcome] * len(items)

    def _try_to_keep(
        self, group: BlockGroup, items: Sequence[StoreItem], deadline_s: float
    ) -> list[Outcome]:
        counts = Removals()
        if is_late(deadline_s):
            return [LATE] * len(items)
        with self._filing(deadline_s) as tables:
            self._write_uses(tables)
            packer = RecordPacker(group, self._index.in_front(record_bytes(group)))
            outcomes = in_order(
                items, lambda item: self._put(tables, group, item, packer, counts), deadline_s
            )
        self._tally.remove_all(counts)
        return outcomes

    def _put(
        self,
        tables: Filing,
        group: BlockGroup,
        item: StoreItem,
        packer: RecordPacker,
        counts: Removals,
    ) -> Outcome:
        address, now_s = address_of(group.name, item.key), self._clock.wall()
        if tables.use(address, item.retention, now_s):
            return EXISTS
        retention = item.retention or group.retention
        facts = tables.new_facts(item, retention, record_bytes(group), now_s)
        problem = self._admit(tables, item.namespace, facts.taken_bytes, counts)
        if problem is None:
            tables.add(address, packer.pack(item, now_s), facts)
        return problem or STORED

    def _admit(
        self, tables: Filing, namespace: bytes, size_bytes: int, counts: Removals
    ) -> Outcome | None:
        """Make room for a record; None: there is some now."""
        limits = self._limits
        if limits.quota_bytes:
            over = tables.used_bytes(namespace) + size_bytes - limits.quota_bytes
            if over > 0:
                self._free(tables, over, counts, "quota", owner=namespace)
                if tables.used_bytes(namespace) + size_bytes > limits.quota_bytes:
                    return OVER_QUOTA
        used_bytes = tables.used_bytes()
        if used_bytes + size_bytes > limits.capacity_bytes:
            over = used_bytes + size_bytes - limits.low_bytes
            self._free(tables, over, counts, "room", most=_REMOVED_AT_ONCE)
            if tables.used_bytes() + size_bytes > limits.capacity_bytes:
                return FULL
        return None

    def _free(
        self,
        tables: Filing,
        wanted_bytes: int,
        counts: Removals,
        reason: str,
        *,
        owner: bytes = b"",
        most: int | None = None,
    ) -> None:
        """Remove records until so much is free, or only young ones are left."""
        young_from_s = self._clock.wall() - self._limits.young_s
        going = tables.going(wanted_bytes, young_from_s, owner)
        self._remove(tables, going[:most], counts, reason)

    def _remove(
        self,
        tables: Filing,
        addresses: Sequence[bytes],
        counts: Removals,
        reason: str,
    ) -> None:
        now_s = self._clock.wall()
        for address in addresses:
            facts = tables.remove(address)
            if facts is not None:
                group, _, key = address.partition(b"\0")
                counts.add(reason, now_s - facts.used_s, group.decode(), key)

    def _write_uses(self, tables: Filing) -> None:
        for address, (retention, used_s) in self.uses.take().items():
            tables.use(address, retention, used_s)

    def _filing(self, deadline_s: float) -> AbstractContextManager[Filing]:
        return filing(self._environment, self._index, self._limits, deadline_s)
