"""What lies where in a segment file?

A file is written by one process, from its beginning on, and never changed but for holes::

    page 0          what the file is: see below
    then            records (``stores.records``), each filled up to whole pages of 4,096 bytes
    last page       the seal, once nothing more is written; missing where a writer was killed

All records of a file are of one group and length, so where each begins is known even if others are
damaged. A record that was removed is a hole, and reads as zeros. Numbers are little-endian::

    page 0: at  0  8 bytes  magic                seal: at  0  8 bytes  magic
                8  4        version of the format          8  4        CRC-32 of what follows
               12  4        CRC-32 of what follows        12  4        zeros
               16 16        name of the group             16  8        records in front of it
               32 16        fingerprint of the layout
               48  8        bytes of a block
               56  8        seconds since 1970, a double: when the file was begun

The same record may lie in several files, because two machines stored it or because one moved it.
The file that was begun later has the one that counts; of two that were begun at once, the one whose
name is greater. What is moved goes to a file that was begun later. So all machines keep the same.
"""

from __future__ import annotations

import re
import struct
import zlib
from dataclasses import dataclass

from deepinfer_core.stores.records import HEADER_BYTES

__all__ = [
    "FILE_NAME",
    "PAGE_BYTES",
    "SegmentHead",
    "is_blank",
    "is_seal",
    "pack_seal",
    "padded_bytes",
]

PAGE_BYTES = 4096

FILE_NAME = re.compile(r"[0-9a-f]{16}-[0-9]{8}\.seg")
"""Writer and number."""

_VERSION = 1
_HEAD_MAGIC, _SEAL_MAGIC = b"DIsegmnt", b"DIsealed"
_HEAD = struct.Struct("<8sII")
_HEAD_BODY = struct.Struct("<16s16sQd")
_SEAL = struct.Struct("<8sI4x")
_SEAL_BODY = struct.Struct("<Q")


def padded_bytes(record_bytes: int) -> int:
    """Whole pages that a record takes."""
    return -(-record_bytes // PAGE_BYTES) * PAGE_BYTES


def is_blank(data: bytes | bytearray | memoryview) -> bool:
    """Whether there are zeros only, as in a hole."""
    return not any(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentHead:
    """What the first page says.

    Attributes:
        group, layout, block_bytes: as of ``BlockGroup``.
        begun_s: seconds since 1970.
    """

    group: str
    layout: bytes
    block_bytes: int
    begun_s: float

    @property
    def stride_bytes(self) -> int:
        """From one record to the next."""
        return padded_bytes(HEADER_BYTES + self.block_bytes)

    def pack(self) -> bytes:
        """The first page."""
        body = _HEAD_BODY.pack(self.group.encode(), self.layout, self.block_bytes, self.begun_s)
        prologue = _HEAD.pack(_HEAD_MAGIC, _VERSION, zlib.crc32(body))
        return (prologue + body).ljust(PAGE_BYTES, b"\0")

    @classmethod
    def unpack(cls, page: bytes) -> SegmentHead | None:
        """What the first page says; None: nothing that this software reads."""
        if len(page) < _HEAD.size + _HEAD_BODY.size:
            return None
        magic, version, crc = _HEAD.unpack_from(page)
        body = page[_HEAD.size : _HEAD.size + _HEAD_BODY.size]
        if (magic, version) != (_HEAD_MAGIC, _VERSION) or zlib.crc32(body) != crc:
            return None
        group, layout, block_bytes, begun_s = _HEAD_BODY.unpack(body)
        return cls(
            group=group.rstrip(b"\0").decode("ascii", "replace"),
            layout=layout,
            block_bytes=block_bytes,
            begun_s=begun_s,
        )


def pack_seal(records: int) -> bytes:
    """The last page of a file with so many records."""
    body = _SEAL_BODY.pack(records)
    return (_SEAL.pack(_SEAL_MAGIC, zlib.crc32(body)) + body).ljust(PAGE_BYTES, b"\0")


def is_seal(data: bytes | memoryview, records: int) -> bool:
    """Whether a page begins like the seal behind so many records."""
    return bytes(data[: _SEAL.size + _SEAL_BODY.size]) == pack_seal(records)[: _SEAL.size + 8]
