"""Is a stored block what was asked for, and whole?

A record is read in one loop over many, because a block that is copied pushes out of the fastest
cache what the interpreter needs, and each function called for a block is fetched again with it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator

from deepinfer_core.interfaces.kv_store import BlockGroup, Buffer, Outcome
from deepinfer_core.stores.checksums import CHECKSUMS
from deepinfer_core.stores.records import (
    BEGINNING,
    CRC_OF_PROLOGUE,
    HEADER_BYTES,
    PROLOGUE_BYTES,
    padded,
    read_facts,
    record_bytes,
)

__all__ = ["RecordReader", "StoredUnder"]

_CHECKED = struct.Struct("<12sI64s32x16s4xH2xQQ16s24x")
"""What is compared with what was asked for, and what the reader tells; see ``records``."""

StoredUnder = tuple[bytes, int]
"""Class, filled up, and second since 1970 under which a record was stored."""


class RecordReader:
    """Reads records of one group that is asked for; made once for many of them."""

    def __init__(self, group: BlockGroup) -> None:
        self._group, self._record_bytes = group, record_bytes(group)
        self._whose = group.layout + padded(group.name)

    def view(self, record: memoryview, key: bytes) -> memoryview | Outcome:
        """The block of a record, where it lies; otherwise ``corrupt`` or ``version``.

        Args:
            record: from its first byte to its last.
            key: that was asked for.
        """
        [found] = self.read_each((record,), (key,), (None,))
        return found if isinstance(found, Outcome) else self.block(record)

    def block(self, record: memoryview) -> memoryview:
        """The block of a record that was read and is whole, where it lies."""
        return record[-self._group.block_bytes :]

    def copy(self, record: memoryview, key: bytes, destination: Buffer) -> Outcome | None:
        """Copy the block of a record; what is checked is the copy, in the processor's cache.

        Args:
            record: from its first byte to its last.
            key: that was asked for.
            destination: writable, of the group's ``block_bytes``; undefined behind a problem.

        Returns:
            None, or what is wrong with the record: ``corrupt`` or ``version``.
        """
        [found] = self.read_each((record,), (key,), (destination,))
        return found if isinstance(found, Outcome) else None

    def read_each(
        self,
        found: Iterable[memoryview | None],
        keys: Iterable[bytes],
        destinations: Iterable[Buffer | None],
    ) -> Iterator[StoredUnder | Outcome | None]:
        """Check records one by one, each when the caller comes for it, and copy their blocks.

        Args:
            found: records, perhaps behind zeros; None: there is none.
            keys: that were asked for.
            destinations: as of ``copy``; None: the block is checked where it lies.

        Yields:
            What the record was stored under; what is wrong with it; None where there is none.
        """
        record_bytes, block_bytes = self._record_bytes, self._group.block_bytes
        unpack, crc_32, checksums, whose = _CHECKED.unpack_from, zlib.crc32, CHECKSUMS, self._whose
        for record, key, destination in zip(found, keys, destinations, strict=True):
            if record is None:
                yield None
                continue
            if (at := len(record) - record_bytes) >= 0:
                beginning, crc, of, retention, kind, written_s, data_bytes, checksum = unpack(
                    record, at
                )
                compute = checksums.get(kind)
                if (
                    of == whose + key
                    and compute is not None
                    and beginning == BEGINNING
                    and data_bytes == block_bytes
                    and crc_32(record[at + PROLOGUE_BYTES : -block_bytes], CRC_OF_PROLOGUE) == crc
                ):
                    data: Buffer = record[-block_bytes:]
                    if destination is not None:
                        # Not ``destination[:]``: a bytearray copies what it is given once more.
                        memoryview(destination)[:] = data
                        data = destination
                    yield (retention, written_s) if compute(data) == checksum else _CHANGED
                    continue
            yield self._problem(_behind_zeros(record), key)

    def _problem(self, record: memoryview, key: bytes) -> Outcome:
        """What is wrong with a header that is not as it should be."""
        if isinstance(facts := read_facts(record), Outcome):
            return facts
        if (facts.group, facts.key) != (self._group.name, key):
            return _corrupt("it is the record of another block")
        if facts.layout != self._group.layout:
            return _other_version("it has another layout")
        if facts.data_bytes != self._group.block_bytes or len(record) != self._record_bytes:
            return _corrupt(f"{len(record)} bytes, expected {self._record_bytes}")
        return _other_version(f"no checksum {facts.checksum_kind} here: install xxhash")


def _behind_zeros(record: memoryview) -> memoryview:
    """A record from its first byte on, which is none of the zeros that it may be filed behind."""
    beginning = bytes(record[:HEADER_BYTES])
    return record[len(beginning) - len(beginning.lstrip(b"\0")) :]


def _corrupt(reason: str) -> Outcome:
    return Outcome(status="corrupt", reason=reason)


def _other_version(reason: str) -> Outcome:
    return Outcome(status="version", reason=reason)


_CHANGED = _corrupt("the block has changed")
