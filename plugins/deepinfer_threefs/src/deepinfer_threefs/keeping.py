"""How does a process store, renew and remove blocks in a folder that it shares?

One thread at a time changes files; ``catalogue.lock`` is only held where nothing waits for a disk.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from deepinfer_core.interfaces.kv_store import KEY_BYTES, BlockGroup, Outcome, StoreItem
from deepinfer_core.stores.calls import CLOSED, EXISTS, FULL, LATE, STORED, Tally, in_order, is_late
from deepinfer_core.stores.disk.clock import Clock, ClockWatch
from deepinfer_core.stores.records import pack_record, record_bytes
from deepinfer_core.stores.retention import Limits
from deepinfer_core.stores.shelf import Address, Kept

from deepinfer_threefs.catalogue import Catalogue, Place
from deepinfer_threefs.collector import Collector
from deepinfer_threefs.journal import DISCARDED, DROPPED, Entry, Journal
from deepinfer_threefs.medium import PosixMedium
from deepinfer_threefs.place import StorePlace, make_private
from deepinfer_threefs.scanner import JOURNALS, Scanner
from deepinfer_threefs.segments import padded_bytes
from deepinfer_threefs.writer import Writer

__all__ = ["Keeper"]

_BLOCKS_AT_ONCE = 64
"""Blocks that are written, and wait for the medium, together."""

_REMOVED_AT_ONCE = 256
"""Blocks that a sweep removes before others get their turn."""

_FIRST_LOOK_S = 30.0
"""What has not been seen by then is found by later looks; until that nothing expires."""

_SPARE_ENTRIES = 4096
"""Of the journal, beyond twice what would be left of it, before it is written anew."""


@dataclass(slots=True)
class _Batch:
    """Blocks that are about to be written, in order."""

    addresses: list[Address] = field(default_factory=list)
    kept: list[Kept[Place]] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)


class Keeper:
    """What changes a store.

    Args:
        place: where and how.
        groups: that the store was opened for.
        limits: what may be kept.
        medium: of the files.
        clock: for ages.
        tally: counts what is removed.

    Attributes:
        catalogue: what is known.
    """

    def __init__(
        self,
        place: StorePlace,
        groups: Mapping[str, BlockGroup],
        limits: Limits,
        *,
        medium: PosixMedium,
        clock: Clock,
        tally: Tally,
    ) -> None:
        self.catalogue = Catalogue(groups, limits, clock.wall, tally)
        self._limits, self._medium, self._clock = limits, medium, clock
        self._writer = Writer(place, medium=medium, catalogue=self.catalogue, clock=clock)
        self._journal = Journal(os.path.join(place.folder, JOURNALS), self._writer.name)
        self._scanner = Scanner(place.folder, self.catalogue, self._writer.name)
        self._collector = Collector(self.catalogue, self._writer, medium)
        self._lock = threading.Lock()
        self._problem = ""
        self._is_over = False
        make_private(place.folder)
        medium.prepare(place.folder)
        self._scanner.look(time.monotonic() + _FIRST_LOOK_S)
        if self._scanner.problem:
            raise OSError(self._scanner.problem)
        self._watch = ClockWatch(clock, self.catalogue.newest_s or None)

    @property
    def problem(self) -> str:
        """Why the store cannot be used now; empty: it can."""
        return self._problem or self._scanner.problem

    @property
    def work(self) -> dict[str, int]:
        """What there is to tell of files."""
        with self.catalogue.lock:
            files = len(self.catalogue.segments)
        return {"files": files, "unreadable_files": self._scanner.unreadable}

    def look(self, deadline_s: float) -> None:
        """Find what others have written."""
        self._scanner.look(deadline_s)

    def keep(
        self, group: BlockGroup, items: Sequence[StoreItem], deadline_s: float
    ) -> list[Outcome]:
        """Store blocks, some at a time."""
        outcomes: list[Outcome] = []
        for start in range(0, len(items), _BLOCKS_AT_ONCE):
            some = items[start : start + _BLOCKS_AT_ONCE]
            with self._alone(deadline_s) as problem:
                outcomes += (
                    [problem] * len(some) if problem else self._keep(group, some, deadline_s)
                )
            if outcomes[-1].status not in ("stored", "exists"):
                break
        return outcomes + outcomes[-1:] * (len(items) - len(outcomes))

    def drop(self, namespace: bytes | None) -> int:
        """Remove the blocks of a namespace, or all, and their bytes from all files that can be.

        Those of files that others write are removed by them, when they look.

        Raises:
            OSError: some may be left.
        """
        self._scanner.look(math.inf)
        with self._alone(math.inf) as problem:
            if problem:
                return 0
            key = namespace or bytes(KEY_BYTES)
            entry = Entry(kind=DROPPED, key=key, at_s=self._clock.wall())
            self._journal.append([entry], durable=True)
            with self.catalogue.lock:
                removed = self.catalogue.shelf.remove_namespace(namespace)
                self.catalogue.apply(entry)
            self._writer.seal_all()  # so that a file of which nothing is kept can go
            self._collector.erase()
        return removed

    def discard(self, addresses: Collection[Address], deadline_s: float) -> int:
        """Remove single records for good, and those of them that were found damaged before."""
        catalogue, at_s = self.catalogue, self._clock.wall()
        with self._alone(deadline_s) as problem:
            if problem:
                return 0
            with catalogue.lock:
                entries = [
                    Entry(kind=DISCARDED, key=where, at_s=at_s, group=address[0])
                    for address in addresses
                    for where in catalogue.discards.of(address, catalogue.place(address))
                ]
            try:
                self._journal.append(entries, durable=True)
            except OSError as error:
                self._problem = f"files cannot be written: {error.strerror or error}"
                return 0
            with catalogue.lock:
                known = [one for one in addresses if catalogue.place(one) is not None]
                removed = catalogue.shelf.remove(known, "discarded")
                for entry in entries:
                    catalogue.apply(entry)
        return removed

    def sweep(self, deadline_s: float) -> int:
        """Remove what has expired, then make room if more than the upper mark is taken."""
        removed = 0
        if is_late(deadline_s):
            return removed
        knows_uses = self._scanner.look(deadline_s)
        with self._alone(deadline_s) as problem:
            if problem:
                return removed
            if knows_uses:
                removed = self._remove_old(deadline_s)
            try:
                self._tidy_up(deadline_s)
                self._problem = ""
            except OSError as error:
                self._problem = f"files cannot be changed: {error.strerror or error}"
        return removed

    def end(self) -> None:
        """Seal all files; nothing is changed from then on."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
            with contextlib.suppress(OSError):
                self._tell_uses()
            self._writer.seal_all()
            self._journal.close()
            self._medium.end()

    @contextlib.contextmanager
    def _alone(self, deadline_s: float) -> Iterator[Outcome | None]:
        """The only one that changes files, within the context; or why not."""
        wait_s = max(0.0, deadline_s - time.monotonic())
        if not self._lock.acquire(timeout=min(wait_s, threading.TIMEOUT_MAX)):
            yield LATE
            return
        try:
            yield CLOSED if self._is_over else None
        finally:
            self._lock.release()

    def _remove_old(self, deadline_s: float) -> int:
        removed, more = 0, _REMOVED_AT_ONCE if self._watch.is_steady() else 0
        while more == _REMOVED_AT_ONCE and not is_late(deadline_s):
            with self.catalogue.lock:
                more = self.catalogue.shelf.remove_expired(_REMOVED_AT_ONCE)
            removed += more
        with self.catalogue.lock:
            return removed + self.catalogue.shelf.make_room()

    def _keep(
        self, group: BlockGroup, items: Sequence[StoreItem], deadline_s: float
    ) -> list[Outcome]:
        batch = _Batch()
        outcomes = in_order(items, lambda item: self._take(group, item, batch), deadline_s)
        try:
            self._tell_uses()
            written = self._writer.append(group, batch.records)
            self._problem = ""
        except OSError as error:
            self._problem = f"files cannot be written: {error.strerror or error}"
            outcomes = self._withdraw(batch, outcomes)
        else:
            places = zip(batch.addresses, batch.kept, written, strict=True)
            with self.catalogue.lock:
                for address, kept, place in places:
                    self.catalogue.written(address, kept, place.segment, place.offset)
        if self.catalogue.has_freed:
            self.catalogue.has_freed = False
            with contextlib.suppress(OSError):  # the next sweep tries again, and tells
                self._collector.free_dead()
        return outcomes

    def _take(self, group: BlockGroup, item: StoreItem, batch: _Batch) -> Outcome:
        address, catalogue = (group.name, item.key), self.catalogue
        with catalogue.lock:
            if catalogue.use(address, item.retention):
                return EXISTS
            problem = catalogue.shelf.put(
                address,
                Place(None, 0, padded_bytes(record_bytes(group))),
                namespace=item.namespace,
                depth=item.depth,
                retention=item.retention or group.retention,
            )
            kept = catalogue.shelf.get(address)
        if problem is not None or kept is None:
            return problem or FULL
        batch.addresses.append(address)
        batch.kept.append(kept)
        batch.records.append(pack_record(group, item, self._clock.wall()))
        return STORED

    def _withdraw(self, batch: _Batch, outcomes: list[Outcome]) -> list[Outcome]:
        """Take blocks back that could not be written; those behind the first are not kept either.

        One that was there already stays, even if it is behind.
        """
        with self.catalogue.lock:
            for address, kept in zip(batch.addresses, batch.kept, strict=True):
                self.catalogue.withdraw(address, kept)
        first = outcomes.index(STORED) if STORED in outcomes else 0
        failed = Outcome(status="unavailable", reason=self._problem)
        return outcomes[:first] + [failed] * (len(outcomes) - first)

    def _tell_uses(self) -> None:
        with self.catalogue.lock:
            uses = self.catalogue.take_uses()
        self._journal.append(uses, durable=False)

    def _tidy_up(self, deadline_s: float) -> None:
        self._tell_uses()
        outdated_s = self._clock.wall() - max(self._limits.retention_s.values())
        with self.catalogue.lock:
            told = self.catalogue.told_uses() + self.catalogue.drops(outdated_s)
            told += self.catalogue.discards.since(outdated_s)
        if self._journal.entries > 2 * len(told) + _SPARE_ENTRIES:
            self._journal.renew(told)
        for path in self._scanner.outdated_journals(outdated_s):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        self._writer.seal_idle()
        if self.catalogue.must_erase:
            self.catalogue.must_erase = False
            self._collector.erase()
        self._collector.collect(deadline_s)
