"""Which bytes are under a key, and are they what was stored?

What is read is judged by its own checksum and by the key that it names. Only then is it asked why
it is not good: a file that vanished, or zeros where a record was, mean that another machine has
removed it, which is a miss.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deepinfer_core.interfaces.kv_store import BlockGroup, Outcome
from deepinfer_core.stores.calls import HIT, LATE, MISS, is_late
from deepinfer_core.stores.record_reader import RecordReader
from deepinfer_core.stores.records import HEADER_BYTES, record_bytes
from deepinfer_core.stores.shelf import Address

from deepinfer_threefs.catalogue import Catalogue, Place
from deepinfer_threefs.medium import PosixMedium, Span
from deepinfer_threefs.segments import is_blank

__all__ = ["Reader"]

_GONE = (errno.ENOENT, errno.ESTALE)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A block, and where it lies."""

    index: int
    address: Address
    place: Place
    path: str


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads blocks; may be used from several threads.

    Attributes:
        catalogue: says where they lie.
        medium: reads them.
    """

    catalogue: Catalogue
    medium: PosixMedium

    def load(
        self,
        group: BlockGroup,
        keys: Sequence[bytes],
        destinations: Sequence[bytearray | memoryview],
        deadline_s: float,
        *,
        is_use: bool,
    ) -> list[Outcome]:
        """Copy blocks out of their files; whether that is noted as their use is said."""
        if is_late(deadline_s):
            return [LATE] * len(keys)
        outcomes = [MISS] * len(keys)
        wanted = self._places(group, keys, range(len(keys)))
        doubtful = self._read(group, wanted, destinations, outcomes, deadline_s, is_use)
        if doubtful:
            # Perhaps it was moved, or half written, when it was read: once more, where it is now.
            again = self._places(group, keys, [one.index for one in doubtful])
            for one in doubtful:
                self.medium.forget(one.path)
                outcomes[one.index] = MISS
            doubtful = self._read(group, again, destinations, outcomes, deadline_s, is_use)
            for one in doubtful:
                outcomes[one.index] = self._remove(one, outcomes[one.index])
        return outcomes

    def _places(
        self, group: BlockGroup, keys: Sequence[bytes], indices: Iterable[int]
    ) -> list[_Wanted]:
        found: list[_Wanted] = []
        with self.catalogue.lock:
            for index in indices:
                address = (group.name, keys[index])
                place = self.catalogue.place(address)
                if place is not None and place.segment is not None:
                    found.append(_Wanted(index, address, place, place.segment.path))
        return found

    def _read(
        self,
        group: BlockGroup,
        wanted: Sequence[_Wanted],
        destinations: Sequence[bytearray | memoryview],
        outcomes: list[Outcome],
        deadline_s: float,
        is_use: bool,
    ) -> list[_Wanted]:
        """Read blocks; those that are not what they should be."""
        doubtful: list[_Wanted] = []
        for one in wanted:
            outcomes[one.index] = LATE
        length = record_bytes(group)
        spans = [Span(one.path, one.place.offset, length) for one in wanted]
        for moved in self.medium.read(spans, deadline_s):
            one = wanted[moved.number]
            found = _judged(moved.found, group, one.address[1])
            if isinstance(found, Outcome):
                outcomes[one.index] = found
                if found.status in ("miss", "corrupt", "version"):
                    doubtful.append(one)
                elif one.place.segment is not None:
                    with self.catalogue.lock:
                        self.catalogue.read_badly(one.place.segment)
            else:
                destinations[one.index][:] = found
                outcomes[one.index] = HIT
                with self.catalogue.lock:
                    if is_use:
                        self.catalogue.use(one.address)
                    if one.place.segment is not None:
                        self.catalogue.read_well(one.place.segment)
            if is_late(deadline_s):
                break
        return doubtful

    def _remove(self, one: _Wanted, outcome: Outcome) -> Outcome:
        """Take a record off the books that cannot be read, so that it can be stored again."""
        with self.catalogue.lock:
            if self.catalogue.place(one.address) is not one.place:
                return MISS  # it went, or was moved, while it was read
            if outcome is _NO_FILE:
                self.catalogue.vanished(one.path)
            elif outcome.status == "miss":
                self.catalogue.shelf.forget([one.address])
            else:
                self.catalogue.discards.found_damaged(one.address, one.place)
                self.catalogue.shelf.remove([one.address], "damaged")
        return outcome


_NO_FILE = Outcome(status="miss", reason="its file is not there any more")
_NO_RECORD = Outcome(status="miss", reason="it was removed by another process")


def _judged(found: memoryview | OSError, group: BlockGroup, key: bytes) -> memoryview | Outcome:
    """The block, or what is wrong."""
    if isinstance(found, OSError):
        if found.errno in _GONE:
            return _NO_FILE
        if found.errno == errno.ENODATA:
            return Outcome(status="corrupt", reason="a part of it is missing")
        reason = f"it cannot be read: {found.strerror or found}"
        return Outcome(status="unavailable", reason=reason)
    if is_blank(found[:HEADER_BYTES]):
        return _NO_RECORD
    return RecordReader(group).view(found, key)
