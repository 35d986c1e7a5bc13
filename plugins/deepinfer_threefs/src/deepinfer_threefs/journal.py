"""Which blocks were used or discarded, which namespaces dropped, as told to other machines?

Each process has a file of its own, to which it only appends entries of 96 bytes::

    at  0  4 bytes  magic
        4  4        CRC-32 of what follows
        8  4        kind: 1 a block was used, 2 a namespace was dropped, 3 a record was discarded
       12 16        name of the group; of a namespace zeros
       28 32        key; or namespace, zeros: all namespaces; or of a record that was discarded
                    25 bytes name of its file up to the dot, 7 its offset, little end first
       60 16        retention class; of others than uses zeros
       76  8        seconds since 1970, a double
       84 12        zeros

A use that is lost lets a block go early, so entries may be written late; the others are on the
medium before anything is removed.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from deepinfer_threefs.place import make_private

__all__ = [
    "DISCARDED",
    "DROPPED",
    "ENTRY_BYTES",
    "FILE_NAME",
    "USED",
    "Entry",
    "Journal",
    "unpack_entries",
]

ENTRY_BYTES = 96
FILE_NAME = re.compile(r"[0-9a-f]{16}-[0-9]{8}\.log")
USED, DROPPED, DISCARDED = 1, 2, 3

_MAGIC = b"DIj1"
_PROLOGUE = struct.Struct("<4sI")
_BODY = struct.Struct("<I16s32s16sd12x")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What happened.

    Attributes:
        kind: ``USED``, ``DROPPED`` or ``DISCARDED``.
        key: of the block, or the namespace, or ``discards.record_at``.
        at_s: seconds since 1970.
        group: of the block.
        retention: class that the block has from then on.
    """

    kind: int
    key: bytes
    at_s: float
    group: str = ""
    retention: str = ""

    def pack(self) -> bytes:
        """As it is filed."""
        body = _BODY.pack(
            self.kind, self.group.encode(), self.key, self.retention.encode(), self.at_s
        )
        return _PROLOGUE.pack(_MAGIC, zlib.crc32(body)) + body


def unpack_entries(data: bytes) -> Iterator[Entry | None]:
    """Entries in order; None for one that is damaged. A torn end is left out."""
    for start in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
        magic, crc = _PROLOGUE.unpack_from(data, start)
        body = data[start + _PROLOGUE.size : start + ENTRY_BYTES]
        if magic != _MAGIC or zlib.crc32(body) != crc:
            yield None
            continue
        kind, group, key, retention, at_s = _BODY.unpack(body)
        yield Entry(
            kind=kind,
            key=key,
            at_s=at_s,
            group=group.rstrip(b"\0").decode("ascii", "replace"),
            retention=retention.rstrip(b"\0").decode("ascii", "replace"),
        )


class Journal:
    """The file of this process; made with its first entry.

    Args:
        folder: of all journals.
        writer: name of this process.
    """

    def __init__(self, folder: str, writer: str) -> None:
        self._folder, self._writer = folder, writer
        self._fd: int | None = None
        self._number = 0
        self.entries = 0

    @property
    def name(self) -> str:
        """Of the file."""
        return f"{self._writer}-{self._number:08}.log"

    def append(self, entries: list[Entry], *, durable: bool) -> None:
        """Add entries.

        Raises:
            OSError: they may not have been written.
        """
        if not entries:
            return
        if self._fd is None:
            self._fd = self._create()
        data = b"".join(entry.pack() for entry in entries)
        end = self.entries * ENTRY_BYTES
        written = 0
        while written < len(data):
            # At a place of its own, so that what failed half-way is written over.
            written += os.pwrite(self._fd, memoryview(data)[written:], end + written)
        if durable:
            os.fsync(self._fd)
        self.entries += len(entries)

    def renew(self, entries: list[Entry]) -> None:
        """Begin a new file with these entries in place of the old one.

        Raises:
            OSError: as of ``append``; the old file stays.
        """
        old_fd, old_name, old_entries = self._fd, self.name, self.entries
        self._fd, self._number, self.entries = None, self._number + 1, 0
        try:
            self.append(entries, durable=True)
        except OSError:
            self.close()
            self._fd, self.entries = old_fd, old_entries
            self._number -= 1
            raise
        if old_fd is not None:
            with contextlib.suppress(OSError):
                os.close(old_fd)
            os.unlink(os.path.join(self._folder, old_name))

    def close(self) -> None:
        """End its use."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            with contextlib.suppress(OSError):
                os.close(fd)

    def _create(self) -> int:
        make_private(self._folder)
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        return os.open(os.path.join(self._folder, self.name), flags, 0o600)
