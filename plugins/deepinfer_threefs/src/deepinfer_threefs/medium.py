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
from deepinfer_threefs.segments import PAGE_BYTES

__all__ = ["Extent", "Moved", "PosixMedium", "Span"]

_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01
"""FALLOC_FL_PUNCH_HOLE and FALLOC_FL_KEEP_SIZE, of linux/falloc.h."""

_BUFFERS_AT_ONCE = 1000
"""Below IOV_MAX, which is 1,024 on Linux."""


_ERASED_AT_ONCE = 1 << 20

Extent = tuple[int, int]
"""From and to, in bytes."""


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
    """Files of any mount.

    Attributes:
        hole_bytes: holes begin and end at multiples of it.
    """

    hole_bytes = PAGE_BYTES

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

    def free(self, path: str, spans: Sequence[Extent], *, must_erase: bool) -> list[Extent]:
        """Make holes of spans that nobody needs any more.

        Args:
            path: of the file.
            spans: of whole pages.
            must_erase: write zeros where holes cannot be made.

        Returns:
            What is gone.

        Raises:
            OSError: perhaps not all that was wanted is.
        """
        holes = _aligned(spans, self.hole_bytes) if self._can_punch else []
        if not holes and not must_erase:
            return []
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if holes and not self._try_to_punch(fd, holes):
                holes = []
            if must_erase:
                for start, end in spans:
                    self._erase(fd, start, end, holes)
                os.fsync(fd)
        finally:
            os.close(fd)
        return list(spans) if must_erase else holes

    def punch(self, fd: int, spans: Sequence[Extent]) -> None:
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

    def _try_to_punch(self, fd: int, holes: Sequence[Extent]) -> bool:
        try:
            self.punch(fd, holes)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                raise
            self._can_punch = False
        return self._can_punch

    def _erase(self, fd: int, start: int, end: int, holes: Sequence[Extent]) -> None:
        """Write zeros, but for where there is a hole already."""
        while start < end:
            inside = next((hole for hole in holes if hole[0] <= start < hole[1]), None)
            if inside is not None:
                start = inside[1]
                continue
            next_hole = min((hole[0] for hole in holes if hole[0] > start), default=end)
            length = min(end, next_hole, start + _ERASED_AT_ONCE) - start
            start += os.pwrite(fd, bytes(length), start)


def _aligned(spans: Sequence[Extent], step_bytes: int) -> list[Extent]:
    """What of spans is whole steps."""
    inner = [
        (-(-start // step_bytes) * step_bytes, end // step_bytes * step_bytes)
        for start, end in spans
    ]
    return [(start, end) for start, end in inner if start < end]


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
