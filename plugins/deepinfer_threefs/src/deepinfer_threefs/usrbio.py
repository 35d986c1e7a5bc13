"""How are blocks of segment files read and written through USRBIO, the rings of 3FS?

Names and lengths of files, and headers that are looked through, go through the mount as always;
blocks go through rings and memory that the client of 3FS shares. Nobody relies upon submitting:
what is prepared is in flight.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from deepinfer_core.stores.calls import is_late

from deepinfer_threefs.channels import FORBID_HOLES, Channel, Channels, Flight
from deepinfer_threefs.medium import Extent, Moved, PosixMedium, Span
from deepinfer_threefs.open_files import OpenFiles

__all__ = ["UsrbioMedium"]

_TRANSIENT = (errno.EIO, errno.EAGAIN, errno.EINTR, errno.EREMOTEIO)
"""What may be over in a moment. A version that is not committed yet comes out as ``EIO``."""

_RETRY_WAIT_S = 0.001
_WRITE_LIMIT_S = 30.0
_WRITE_BYTES = 1 << 20
"""Of one write: as much as a chunk of a file has, by 3FS's guide."""

_WRITE_ENTRIES = 16

_RANGES_AT_ONCE = 1000
"""Holes of one call; HF3FS_IOCTL_PUNCH_HOLE_MAX."""


class UsrbioMedium(PosixMedium):
    """Files of a mount of 3FS.

    Args:
        library: the module ``hf3fs_py_usrbio``, or one that is like it.
        ring_entries: reads of a ring.
        rings: of each direction.
        retries: of a read that met something which may be over in a moment.
        chunk_bytes: of files; holes are made of whole chunks.
    """

    def __init__(
        self,
        library: Any,
        *,
        ring_entries: int = 64,
        rings: int = 4,
        retries: int = 3,
        chunk_bytes: int = 1 << 20,
    ) -> None:
        super().__init__()
        self._files = OpenFiles(library.register_fd, library.deregister_fd)
        self.hole_bytes = chunk_bytes
        self._library, self._retries, self._mount = library, retries, ""
        self._reading = Channels(library, entries=ring_entries, most=rings, reads=True)
        self._writing = Channels(
            library, entries=min(ring_entries, _WRITE_ENTRIES), most=rings, reads=False
        )

    def prepare(self, folder: str) -> None:
        """See that the folder is on a mount of 3FS, and that a ring can be made there."""
        super().prepare(folder)
        mount = self._library.extract_mount_point(folder)
        if mount is None:
            raise OSError(errno.ENODEV, "the folder is on no mount of 3FS")
        try:
            self._library.ioring(mount, 1, True, 0, None, None, -1, FORBID_HOLES)
        except OSError as error:
            reason = f"no ring can be made on {mount}: {error.strerror or error}"
            raise OSError(error.errno, reason) from error
        self._mount = mount

    def read(self, spans: Sequence[Span], deadline_s: float) -> Iterator[Moved]:
        """Read spans through a ring, many at once."""
        if not spans:
            return
        left = set(range(len(spans)))
        longest = max(span.length_bytes for span in spans)
        try:
            with self._reading.one(self._mount, longest, deadline_s) as channel:
                if channel is not None:
                    for moved in self._read(channel, spans, deadline_s):
                        left.discard(moved.number)
                        yield moved
        except OSError as error:
            for number in left:
                yield Moved(number, error)

    def create(self, path: str) -> int:
        """Make a file that rings can write."""
        fd = super().create(path)
        try:
            self._library.register_fd(fd)
        except OSError:
            os.close(fd)
            raise
        return fd

    def write(self, fd: int, offset: int, parts: Sequence[bytes | memoryview]) -> None:
        """Write through a ring."""
        data = memoryview(b"".join(parts))
        limit_s = time.monotonic() + _WRITE_LIMIT_S
        with self._writing.one(self._mount, _WRITE_BYTES, limit_s) as channel:
            at = 0
            while channel is not None and (at < len(data) or channel.flights):
                while at < len(data) and channel.free:
                    slot = channel.free.pop()
                    some = data[at : at + _WRITE_BYTES]
                    channel.view(slot)[: len(some)] = some
                    channel.begin(slot, Flight(at, fd, offset + at, len(some)))
                    at += len(some)
                for slot, flight, result in channel.ended(limit_s):
                    if result <= 0:
                        raise _failed(-result or errno.EIO)
                    if not _goes_on(channel, slot, flight, result):
                        channel.free.append(slot)
                if is_late(limit_s) and channel.flights:
                    raise _failed(errno.ETIMEDOUT)
            if channel is None:
                raise _failed(errno.ETIMEDOUT)

    def sync(self, fd: int) -> None:
        """Let others see the file's length; its bytes are safe when they are written."""
        if self._library.force_fsync(fd) != 0:
            raise OSError(errno.EIO, "the file's length could not be set")

    def close(self, fd: int) -> None:
        """Deregister first: afterwards the number may be another file's."""
        self._library.force_fsync(fd)
        self._library.deregister_fd(fd)
        os.close(fd)

    def punch(self, fd: int, spans: Sequence[Extent]) -> None:
        """Make holes of whole chunks."""
        for start in range(0, len(spans), _RANGES_AT_ONCE):
            some = spans[start : start + _RANGES_AT_ONCE]
            self._library.punch_hole(fd, [one for one, _ in some], [end for _, end in some])

    def end(self) -> None:
        """Give memory back that nothing is in flight for."""
        super().end()
        self._reading.close()
        self._writing.close()

    def _read(self, channel: Channel, spans: Sequence[Span], deadline_s: float) -> Iterator[Moved]:
        with ExitStack() as stack:
            queue: list[Flight] = []
            for number, span in enumerate(spans):
                try:
                    fd = stack.enter_context(self._files.reading(span.path))
                except OSError as error:
                    yield Moved(number, error)
                else:
                    queue.append(Flight(number, fd, span.offset, span.length_bytes))
            queue.reverse()
            while (queue or channel.flights) and not is_late(deadline_s):
                while queue and channel.free:
                    channel.begin(channel.free.pop(), queue.pop())
                for slot, flight, result in channel.ended(deadline_s):
                    if self._is_tried_again(channel, slot, flight, result, deadline_s):
                        continue
                    if result < 0:
                        yield Moved(flight.number, _failed(-result))
                    elif not _goes_on(channel, slot, flight, result):
                        yield Moved(flight.number, channel.view(slot)[: flight.done])
                    else:
                        continue
                    channel.free.append(slot)

    def _is_tried_again(
        self, channel: Channel, slot: int, flight: Flight, result: int, deadline_s: float
    ) -> bool:
        if -result not in _TRANSIENT or flight.tries >= self._retries:
            return False
        flight.tries += 1
        wait_s = min(_RETRY_WAIT_S * 2**flight.tries, deadline_s - time.monotonic())
        if wait_s <= 0:
            return False
        time.sleep(wait_s)
        channel.begin(slot, flight)
        return True


def _goes_on(channel: Channel, slot: int, flight: Flight, result: int) -> bool:
    """Note what was moved; whether the rest of it is in flight now."""
    flight.done += result
    if result == 0 or flight.done >= flight.length:
        return False
    channel.begin(slot, flight)
    return True


def _failed(number: int) -> OSError:
    return OSError(number, os.strerror(number))
