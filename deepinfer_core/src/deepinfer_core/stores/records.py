"""What does a stored block say of itself, and is it what was asked for?

A record is a header of 192 bytes and the block. The header repeats all that the block was stored
under, so that an index can be made from records alone, and that a record which is whole but lies in
another's place is found. Numbers are little-endian; texts are ASCII, filled up with zeros::

    at   0  8 bytes  magic
         8  2        version of the format
        10  2        bytes of the header
        12  4        CRC-32 of the header, these four bytes taken as zeros
        16  16       fingerprint of the layout
        32  16       name of the group
        48  32       key
        80  32       namespace
       112  16       retention class
       128  4        depth in the chain
       132  2        number of the checksum
       134  2        zeros
       136  8        seconds since 1970 at which the block was stored
       144  8        bytes of the block
       152  16       checksum of the block
       168  24       zeros

The first 16 bytes mean the same in every version, so that a damaged version number is told from a
newer one. CRC-32 finds every change of up to 32 bits in a row, and so every single bit.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from deepinfer_core.interfaces.kv_store import BlockGroup, Buffer, Outcome, StoreItem, check_item
from deepinfer_core.stores.checksums import CHECKSUMS, best_checksum

__all__ = [
    "FORMAT_VERSION",
    "HEADER_BYTES",
    "RecordFacts",
    "RecordPacker",
    "RecordReader",
    "pack_record",
    "padded",
    "read_block",
    "read_facts",
    "record_bytes",
    "stored_under",
]

HEADER_BYTES = 192
"""A multiple of a cache line, so that blocks are as aligned as records."""

FORMAT_VERSION = 1

_MAGIC = b"DIblock\x00"
_PROLOGUE = struct.Struct("<8sHHI")
_BODY = struct.Struct("<16s16s32s32s16sIHHQQ16s24x")
_CHECKED = struct.Struct("<12sI64s52xH10xQ16s24x")
_STORED = struct.Struct("<112x16s8xQ")
_CRC_AT = 12
_NAME_BYTES = 16

_BEGINNING = _PROLOGUE.pack(_MAGIC, FORMAT_VERSION, HEADER_BYTES, 0)[:_CRC_AT]
_BEGINNING_AND_CRC = struct.Struct("<12sI")
_CRC_OF_PROLOGUE = zlib.crc32(_BEGINNING + bytes(4))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFacts:
    """What a record's header says.

    Attributes:
        group, layout, key, namespace, retention, depth: as of ``BlockGroup`` and ``StoreItem``.
        checksum_kind: which checksum.
        checksum: of the block.
        written_s: seconds since 1970 at which it was stored.
        data_bytes: bytes of the block.
    """

    group: str
    layout: bytes
    key: bytes
    namespace: bytes
    retention: str
    depth: int
    checksum_kind: int
    checksum: bytes
    written_s: int
    data_bytes: int


def record_bytes(group: BlockGroup) -> int:
    """Bytes of every record of a group."""
    return HEADER_BYTES + group.block_bytes


class RecordPacker:
    """Makes records of one group, one after the other in the same memory.

    Args:
        group: of the blocks.
        in_front: bytes of zeros in front of each record.
    """

    def __init__(self, group: BlockGroup, in_front: int = 0) -> None:
        self._group, self._name = group, padded(group.name)
        self._kind = best_checksum()
        self._whole = memoryview(bytearray(in_front + record_bytes(group)))
        self._record = self._whole[in_front:]

    def pack(self, item: StoreItem, written_s: float) -> memoryview:
        """The record of an item that fits, behind its zeros, until the next call.

        The block is read once: its checksum is that of the copy, in the processor's cache.

        Raises:
            ValueError: ``written_s``, seconds since 1970, is before that.
        """
        if written_s < 0:
            raise ValueError(f"stored {-written_s} s before 1970")
        record, group = self._record, self._group
        record[HEADER_BYTES:] = item.data
        _BODY.pack_into(
            record,
            _PROLOGUE.size,
            group.layout,
            self._name,
            item.key,
            item.namespace,
            (item.retention or group.retention).encode(),
            item.depth,
            self._kind,
            0,
            int(written_s),
            group.block_bytes,
            CHECKSUMS[self._kind](record[HEADER_BYTES:]),
        )
        crc = zlib.crc32(record[_PROLOGUE.size : HEADER_BYTES], _CRC_OF_PROLOGUE)
        _BEGINNING_AND_CRC.pack_into(record, 0, _BEGINNING, crc)
        return self._whole


def pack_record(group: BlockGroup, item: StoreItem, written_s: float) -> bytes:
    """The record of one block; see ``RecordPacker``.

    Raises:
        ValueError: the item does not fit the group, or the time is before 1970.
    """
    check_item(group, item)
    return bytes(RecordPacker(group).pack(item, written_s))


def read_facts(record: memoryview) -> RecordFacts | Outcome:
    """What the header says, if it is whole; the block is not looked at.

    Returns:
        The facts; otherwise ``corrupt``, or ``version`` where another version wrote it.
    """
    if (problem := _header_problem(record)) is not None:
        return problem
    layout, group, key, namespace, retention, depth, kind, _, written_s, data_bytes, checksum = (
        _BODY.unpack_from(record, _PROLOGUE.size)
    )
    return RecordFacts(
        group=_text(group),
        layout=layout,
        key=key,
        namespace=namespace,
        retention=_text(retention),
        depth=depth,
        checksum_kind=kind,
        checksum=checksum,
        written_s=written_s,
        data_bytes=data_bytes,
    )


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
        found, data = self._checksum(record, key), record[HEADER_BYTES:]
        if isinstance(found, Outcome):
            return found
        return data if found[0](data) == found[1] else _CHANGED

    def copy(self, record: memoryview, key: bytes, destination: Buffer) -> Outcome | None:
        """Copy the block of a record; what is checked is the copy, in the processor's cache.

        Args:
            record: from its first byte to its last.
            key: that was asked for.
            destination: writable, of the group's ``block_bytes``; undefined behind a problem.

        Returns:
            None, or what is wrong with the record: ``corrupt`` or ``version``.
        """
        found = self._checksum(record, key)
        if isinstance(found, Outcome):
            return found
        # Not ``destination[:]``: a bytearray copies what it is given once more.
        memoryview(destination)[:] = record[HEADER_BYTES:]
        return None if found[0](destination) == found[1] else _CHANGED

    def _checksum(
        self, record: memoryview, key: bytes
    ) -> tuple[Callable[[Buffer], bytes], bytes] | Outcome:
        """How the block is checked, and what must come out, if the header is as it should be."""
        if len(record) == self._record_bytes:
            beginning, crc, whose, kind, data_bytes, checksum = _CHECKED.unpack_from(record)
            compute = CHECKSUMS.get(kind)
            if (
                whose == self._whose + key
                and compute is not None
                and beginning == _BEGINNING
                and data_bytes == self._group.block_bytes
                and zlib.crc32(record[_PROLOGUE.size : HEADER_BYTES], _CRC_OF_PROLOGUE) == crc
            ):
                return compute, checksum
        return self._problem(record, key)

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


def stored_under(record: memoryview) -> tuple[bytes, int]:
    """Class, filled up, and second since 1970 under which a record was stored that is whole."""
    retention, written_s = _STORED.unpack_from(record)
    return retention, written_s


def padded(word: str) -> bytes:
    """The name of a group or class as a header has it."""
    return word.encode().ljust(_NAME_BYTES, b"\0")


def read_block(record: memoryview, group: BlockGroup, key: bytes) -> memoryview | Outcome:
    """The block of one record; see ``RecordReader.view``."""
    return RecordReader(group).view(record, key)


def _header_problem(record: memoryview) -> Outcome | None:
    """What is wrong with a header, whatever is asked for."""
    if len(record) >= HEADER_BYTES:
        beginning, crc = _BEGINNING_AND_CRC.unpack_from(record)
        if beginning == _BEGINNING:
            if zlib.crc32(record[_PROLOGUE.size : HEADER_BYTES], _CRC_OF_PROLOGUE) == crc:
                return None
            return _corrupt("the header has changed")
    if len(record) < _PROLOGUE.size:
        return _corrupt(f"{len(record)} bytes are no record")
    magic, version, header_bytes, crc = _PROLOGUE.unpack_from(record)
    if magic != _MAGIC:
        return _corrupt("it does not begin like a record")
    if not _PROLOGUE.size <= header_bytes <= len(record):
        return _corrupt("the header is cut off")
    behind = zlib.crc32(bytes(4), zlib.crc32(record[:_CRC_AT]))
    if zlib.crc32(record[_PROLOGUE.size : header_bytes], behind) != crc:
        return _corrupt("the header has changed")
    if version != FORMAT_VERSION:
        return _other_version(f"format {version}; this software reads {FORMAT_VERSION}")
    if header_bytes != HEADER_BYTES:
        return _corrupt(f"a header of {header_bytes} bytes")
    return None


def _text(padded: bytes) -> str:
    return padded.rstrip(b"\x00").decode("ascii", "replace")


def _corrupt(reason: str) -> Outcome:
    return Outcome(status="corrupt", reason=reason)


def _other_version(reason: str) -> Outcome:
    return Outcome(status="version", reason=reason)


_CHANGED = _corrupt("the block has changed")
