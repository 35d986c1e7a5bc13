"""How are bytes of segment files read and written?

``PosixMedium`` calls the operating system, on any mount. Others override how blocks move; headers,
names and lengths are always seen to through it.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from deepinfer_threefs.open_files import OpenFiles

__all__ = ["Moved", "PosixMedium", "Span"]

_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01
"""FALLOC_FL_PUNCH_HOLE and FALLOC_FL_KEEP_SIZE, of linux/falloc.h."""

_BUFFERS_AT_ONCE = 1000
"""Below IOV_MAX, which is 1,024 on Linux."""


class Span(NamedTuple):
    """Bytes of a file that are wanted."""

    path: str
    offset: int
    length_bytes: int


class Moved(NamedTuple):
    """What became of a span that was to be read.

    Attributes:
        number: of the span.
        found: its bytes, fewer where the file ends before; or why there are none.
    """

    number: int
    found: memoryview | OSError


class PosixMedium:
    """Files of any mount."""

    def __init__(self) -> None:
        self._files = OpenFiles()
        self._can_punch = True

    def prepare(self, folder: str) -> None:
        """Get ready for files in a folder that is there.

        Raises:
            OSError: they cannot be used this way.
        """
        self._files.begin()

    def read(self, spans: Sequence[Span], deadline_s: float) -> Iterator[Moved]:
        """Read spans, in any order; one that is not done at the deadline may be left out.

        What was found is valid until the next one is asked for.
        """
        scratch = bytearray(max((one.length_bytes for one in spans), default=0))
        for index, span in enumerate(spans):
            view = memoryview(scratch)[: span.length_bytes]
            try:
                with self._files.reading(span.path) as fd:
                    yield Moved(index, view[: _read_all(fd, view, span.offset)])
            except OSError as error:
                yield Moved(index, error)

    def create(self, path: str) -> int:
        """Make a file, to be written by this process alone; its descriptor.

        Raises:
            OSError: it is there, or cannot be made.
        """
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, fd: int, offset: int, parts: Sequence[bytes | memoryview]) -> None:
        """Write parts one behind another.

        Raises:
            OSError: not all was written.
        """
        for start in range(0, len(parts), _BUFFERS_AT_ONCE):
            some = parts[start : start + _BUFFERS_AT_ONCE]
            wanted = sum(map(len, some))
            written = os.pwritev(fd, some, offset)
            if written < wanted:
                rest = memoryview(b"".join(some))
                while written < wanted:
                    written += os.pwrite(fd, rest[written:], offset + written)
            offset += wanted

    def sync(self, fd: int) -> None:
        """Return when all that was written is on the medium, and others see the file's length.

        Raises:
            OSError: perhaps it is not.
        """
        os.fsync(fd)

    def close(self, fd: int) -> None:
        """Close a file that was made."""
        os.close(fd)

    def free(self, path: str, spans: Sequence[tuple[int, int]], *, must_erase: bool) -> bool:
        """Make holes of spans, each from and to, that nobody needs any more.

        Args:
            path: of the file.
            spans: of whole pages.
            must_erase: write zeros where holes cannot be made.

        Returns:
            Whether the bytes are gone.

        Raises:
            OSError: perhaps not all are.
        """
        if not self._can_punch and not must_erase:
            return False
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if self._can_punch:
                try:
                    self.punch(fd, spans)
                except OSError as error:
                    if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                        raise
                    self._can_punch = False
            if not self._can_punch and must_erase:
                for start, end in spans:
                    self._erase(fd, start, end)
            if must_erase:
                os.fsync(fd)
        finally:
            os.close(fd)
        return self._can_punch or must_erase

    def punch(self, fd: int, spans: Sequence[tuple[int, int]]) -> None:
        """Make holes.

        Raises:
            OSError: they cannot be made.
        """
        for start, end in spans:
            if _fallocate()(fd, _PUNCH_HOLE_KEEP_SIZE, start, end - start):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))

    def forget(self, path: str) -> None:
        """Look anew at a file that was read before."""
        self._files.forget(path)

    def end(self) -> None:
        """End all use."""
        self._files.close()

    def _erase(self, fd: int, start: int, end: int) -> None:
        zeros = bytes(min(end - start, 1 << 20))
        while start < end:
            start += os.pwrite(fd, memoryview(zeros)[: end - start], start)


def _read_all(fd: int, view: memoryview, offset: int) -> int:
    """Bytes that were read: all, or up to the end of the file."""
    done = 0
    while done < len(view):
        count = os.preadv(fd, [view[done:]], offset + done)
        if count == 0:
            break
        done += count
    return done


@functools.cache
def _fallocate() -> Callable[[int, int, int, int], int]:
    found = ctypes.CDLL(None, use_errno=True).fallocate
    found.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    found.restype = ctypes.c_int
    return found
