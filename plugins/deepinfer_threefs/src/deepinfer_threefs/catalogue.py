"""Which blocks lie where, as far as this process has looked?

In memory, and made anew from the files whenever a store is opened. All members but ``lock`` need
the lock to be held.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from deepinfer_core.interfaces.kv_store import BlockGroup
from deepinfer_core.stores.calls import Tally
from deepinfer_core.stores.records import RecordFacts
from deepinfer_core.stores.retention import Limits
from deepinfer_core.stores.shelf import Address, Kept, Shelf

from deepinfer_threefs.discards import Discards, record_at, record_of
from deepinfer_threefs.journal import DISCARDED, DROPPED, USED, Entry
from deepinfer_threefs.segments import SegmentHead

__all__ = ["Catalogue", "Place", "Segment"]

_SKEW_S = 5.0
"""Clocks of machines that share a folder differ by less."""

_LOST_S = 60.0

_MOST_USES = 1 << 16
"""Uses that wait to be written; more are forgotten."""


@dataclass(eq=False, slots=True, kw_only=True)
class Segment:
    """A segment file.

    Attributes:
        path: of the file.
        name: its last part.
        head: what its first page says.
        scanned_bytes: up to where its records are known.
        is_own: this process writes it, or did.
        is_growing: more may be written to it.
        is_lasting: it has records of other software, so it is never removed.
        live: addresses of the records that count, by offset.
        dead: offsets of others whose bytes have not been freed.
        seen_bytes: length when it was last looked at.
        still_since_s: when it was first seen to have that length; ``time.monotonic()``.
        failing_since_s: since when no record of it could be read; None: the last one could.
        failing_since_reads: records that had been read then, of all files.
    """

    path: str
    name: str
    head: SegmentHead
    scanned_bytes: int
    is_own: bool
    is_growing: bool = True
    is_lasting: bool = False
    live: dict[int, Address] = field(default_factory=dict)
    dead: set[int] = field(default_factory=set)
    seen_bytes: int = 0
    still_since_s: float = 0.0
    failing_since_s: float | None = None
    failing_since_reads: int = 0

    @property
    def rank(self) -> tuple[float, str]:
        """Of two files with the same record, the one with the greater rank counts."""
        return self.head.begun_s, self.name


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record lies.

    Attributes:
        segment: its file; None: it is being written.
        offset: of its first byte.
        taken_bytes: whole pages.
    """

    segment: Segment | None
    offset: int
    taken_bytes: int

    def __len__(self) -> int:
        return self.taken_bytes


class Catalogue:
    """What is known.

    Args:
        groups: that the store was opened for.
        limits: what may be kept.
        clock: seconds since 1970.
        tally: counts what is removed.

    Attributes:
        lock: of everything here.
        shelf: records within limits; what stands for one is its ``Place``.
        segments: files by path.
        discards: records that are not to be read any more.
        newest_s: latest time that anything here is known to have happened at; 0: nothing is.
        has_freed: whether records left whose bytes may be freed.
        must_erase: whether bytes of dropped namespaces may still be in files of this process.
    """

    def __init__(
        self,
        groups: Mapping[str, BlockGroup],
        limits: Limits,
        clock: Callable[[], float],
        tally: Tally,
    ) -> None:
        self.lock = threading.RLock()
        self.shelf: Shelf[Place] = Shelf(limits, clock, tally, self._left)
        self.segments: dict[str, Segment] = {}
        self.discards = Discards()
        self.newest_s = 0.0
        self.has_freed = self.must_erase = False
        self._reads = 0
        self._groups, self._limits = groups, limits
        self._dropped: dict[bytes, float] = {}
        self._rivals: dict[Address, tuple[Segment, int]] = {}
        self._uses: dict[Address, Entry] = {}
        self._noted: dict[Address, Entry] = {}

    def place(self, address: Address) -> Place | None:
        """Where a record lies that can be read."""
        kept = self.shelf.get(address)
        return None if kept is None or kept.record.segment is None else kept.record

    def use(self, address: Address, retention: str = "") -> bool:
        """Note a use, to be told to others; whether the record is there."""
        kept = self.shelf.get(address)
        if kept is None:
            return False
        before = kept.used_s, kept.retention
        self.shelf.use(address, retention)
        if before != (kept.used_s, kept.retention) and len(self._uses) < _MOST_USES:
            self._uses[address] = Entry(
                kind=USED,
                key=address[1],
                at_s=kept.used_s,
                group=address[0],
                retention=kept.retention,
            )
        return True

    def found(self, segment: Segment, offset: int, facts: RecordFacts) -> None:
        """File a record that lies in a file."""
        self.newest_s = max(self.newest_s, float(facts.written_s))
        is_discarded = record_at(segment.name, offset) in self.discards
        if is_discarded or self._is_dropped(facts.namespace, facts.written_s):
            segment.dead.add(offset)
            return
        address = self._address_of(facts)
        kept = self.shelf.get(address)
        if kept is None:
            place = Place(segment, offset, segment.head.stride_bytes)
            segment.live[offset] = address
            written_s = float(facts.written_s)
            self.shelf.take(
                address,
                Kept(
                    record=place,
                    namespace=facts.namespace,
                    depth=facts.depth,
                    retention=facts.retention,
                    stored_s=written_s,
                    used_s=written_s,
                ),
            )
        else:
            self.move(address, kept, segment, offset)

    def move(self, address: Address, kept: Kept[Place], segment: Segment, offset: int) -> None:
        """Choose between where a record lies and another place that it was found in."""
        old = kept.record
        if old.segment is segment and old.offset == offset:
            return
        if old.segment is None:
            self._rivals[address] = segment, offset  # which one counts is seen when it is written
            return
        if (old.segment.rank, old.offset) > (segment.rank, offset):
            segment.dead.add(offset)
            return
        old.segment.live.pop(old.offset, None)
        old.segment.dead.add(old.offset)
        kept.record = Place(segment, offset, old.taken_bytes)
        segment.live[offset] = address

    def written(self, address: Address, kept: Kept[Place], segment: Segment, offset: int) -> None:
        """File a record that this process has written, unless it had to go meanwhile."""
        rival = self._rivals.pop(address, None)
        if self.shelf.get(address) is not kept:
            segment.dead.add(offset)
            return
        kept.record = Place(segment, offset, kept.record.taken_bytes)
        segment.live[offset] = address
        if rival is not None:
            self.move(address, kept, *rival)

    def withdraw(self, address: Address, kept: Kept[Place]) -> None:
        """Take a record back that could not be written; another process's may take its place."""
        rival = self._rivals.pop(address, None)
        if self.shelf.get(address) is kept:
            if rival is None:
                self.shelf.forget([address])
            else:
                kept.record = Place(*rival, kept.record.taken_bytes)
                rival[0].live[rival[1]] = address

    def read_well(self, segment: Segment) -> None:
        """Note that a record could be read."""
        segment.failing_since_s = None
        self._reads += 1

    def read_badly(self, segment: Segment) -> None:
        """Note that a record could not; after a minute the file's are given up if others can.

        The file stays: perhaps other machines can read it.
        """
        now_s = time.monotonic()
        if segment.failing_since_s is None:
            segment.failing_since_s, segment.failing_since_reads = now_s, self._reads
        elif (
            now_s - segment.failing_since_s > _LOST_S and self._reads > segment.failing_since_reads
        ):
            segment.is_lasting = True
            self.shelf.forget(list(segment.live.values()))
            segment.dead.clear()

    def vanished(self, path: str) -> None:
        """Forget a file that is not there any more, and its records."""
        segment = self.segments.pop(path, None)
        if segment is not None:
            self.shelf.forget(list(segment.live.values()))

    def apply(self, entry: Entry) -> None:
        """What another process, or an earlier one, told."""
        self.newest_s = max(self.newest_s, entry.at_s)
        if entry.kind == USED:
            self.shelf.use((entry.group, entry.key), entry.retention, entry.at_s)
        elif entry.kind == DROPPED:
            self.must_erase = True
            self._dropped[entry.key] = max(entry.at_s, self._dropped.get(entry.key, 0.0))
            self.shelf.forget(
                [
                    address
                    for address, kept in self.shelf
                    if self._is_dropped(kept.namespace, kept.stored_s)
                ]
            )
        elif entry.kind == DISCARDED:
            self.discards.note(entry)
            name, offset = record_of(entry.key)
            here = [one for one in self.segments.values() if one.name == name]
            self.shelf.forget([one.live[offset] for one in here if offset in one.live])

    def take_uses(self) -> list[Entry]:
        """Uses that were not told yet."""
        uses, self._uses = self._uses, {}
        self._noted.update(uses)
        return list(uses.values())

    def told_uses(self) -> list[Entry]:
        """Of all uses that this process told, the last ones of the records that are still kept."""
        self._noted = {one: told for one, told in self._noted.items() if self.shelf.get(one)}
        return list(self._noted.values())

    def drops(self, since_s: float) -> list[Entry]:
        """Namespaces that were dropped since then, by anybody."""
        return [
            Entry(kind=DROPPED, key=key, at_s=at_s)
            for key, at_s in self._dropped.items()
            if at_s >= since_s
        ]

    def _left(self, kept: Kept[Place]) -> None:
        place = kept.record
        if place.segment is not None:
            place.segment.live.pop(place.offset, None)
            place.segment.dead.add(place.offset)
            self.has_freed = True

    def _is_dropped(self, namespace: bytes, written_s: float) -> bool:
        at_s = max(self._dropped.get(namespace, 0.0), self._dropped.get(bytes(32), 0.0))
        return written_s <= at_s + _SKEW_S and at_s > 0.0

    def _address_of(self, facts: RecordFacts) -> Address:
        """Blocks that no call can ask for now are kept apart, for as long as all."""
        group = self._groups.get(facts.group)
        if group and (group.layout, group.block_bytes) == (facts.layout, facts.data_bytes):
            return facts.group, facts.key
        return f"{facts.group} {facts.layout.hex()} {facts.data_bytes}", facts.key
