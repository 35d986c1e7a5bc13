"""What does a stored block say of itself?

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
from dataclasses import dataclass

from deepinfer_core.interfaces.kv_store import BlockGroup, Outcome, StoreItem, check_item
from deepinfer_core.stores.checksums import CHECKSUMS, best_checksum

__all__ = [
    "BEGINNING",
    "CRC_OF_PROLOGUE",
    "FORMAT_VERSION",
    "HEADER_BYTES",
    "PROLOGUE_BYTES",
    "RecordFacts",
    "RecordPacker",
    "pack_record",
    "padded",
    "read_facts",
    "record_bytes",
]

HEADER_BYTES = 192
"""A multiple of a cache line, so that blocks are as aligned as records."""

FORMAT_VERSION = 1

_MAGIC = b"DIblock\x00"
_PROLOGUE = struct.Struct("<8sHHI")
_BODY = struct.Struct("<16s16s32s32s16sIHHQQ16s24x")
_CRC_AT = 12
_NAME_BYTES = 16

BEGINNING = _PROLOGUE.pack(_MAGIC, FORMAT_VERSION, HEADER_BYTES, 0)[:_CRC_AT]
"""Of each record of this format."""

_BEGINNING_AND_CRC = struct.Struct("<12sI")
PROLOGUE_BYTES = _PROLOGUE.size
CRC_OF_PROLOGUE = zlib.crc32(BEGINNING + bytes(4))
"""CRC-32 of the first 16 bytes, from which that of the header goes on."""


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
        crc = zlib.crc32(record[PROLOGUE_BYTES:HEADER_BYTES], CRC_OF_PROLOGUE)
        _BEGINNING_AND_CRC.pack_into(record, 0, BEGINNING, crc)
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


def padded(word: str) -> bytes:
    """The name of a group or class as a header has it."""
    return word.encode().ljust(_NAME_BYTES, b"\0")


def _header_problem(record: memoryview) -> Outcome | None:
    """What is wrong with a header, whatever is asked for."""
    if len(record) >= HEADER_BYTES:
        beginning, crc = _BEGINNING_AND_CRC.unpack_from(record)
        if beginning == BEGINNING:
            if zlib.crc32(record[PROLOGUE_BYTES:HEADER_BYTES], CRC_OF_PROLOGUE) == crc:
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
    if zlib.crc32(record[PROLOGUE_BYTES:header_bytes], behind) != crc:
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
