"""Which rings and which shared memory does a thread use now, and what is still in flight there?

A ring serves one direction and one thread at a time, so there are several, made when they are
needed and kept: one that is given up leaves its link on the mount until the process ends. Memory
whose operations have not ended when its user must go on is put aside until they have.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

__all__ = ["FORBID_HOLES", "Channel", "Channels", "Flight"]

FORBID_HOLES = 2
"""HF3FS_IOR_FORBID_READ_HOLES of ``hf3fs_usrbio.h``: a hole must not look like a block."""

_LOOK_S = 0.25


@dataclass(slots=True)
class Flight:
    """What is in a slot of shared memory.

    Attributes:
        number: of the span that is moved.
        fd: registered.
        offset, length: in the file.
        done: bytes that were moved.
        tries: failures.
    """

    number: int
    fd: int
    offset: int
    length: int
    done: int = 0
    tries: int = 0


class Channel:
    """A ring and its memory, in slots; for one thread at a time.

    Args:
        library: the module ``hf3fs_py_usrbio``, or one that is like it.
        mount: of 3FS.
        entries: slots.
        slot_bytes: of a slot.
        reads: direction.

    Attributes:
        free: slots that nothing is in.
        flights: what is in flight, by slot.
    """

    def __init__(
        self, library: Any, mount: str, *, entries: int, slot_bytes: int, reads: bool
    ) -> None:
        self.slot_bytes, self.entries, self._reads = slot_bytes, entries, reads
        self.flights: dict[int, Flight] = {}
        self.free = list(range(entries))
        name = str(uuid.uuid4())
        path = f"/dev/shm/deepinfer-threefs-{name}"
        self._link = f"{mount}/3fs-virt/iovs/{name}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, entries * slot_bytes)
            self._memory = memoryview(mmap.mmap(fd, entries * slot_bytes))
            os.symlink(path, self._link)  # the client of 3FS maps it now
        finally:
            os.close(fd)
            os.unlink(path)
        self._iov = library.iovec(self._memory, name, mount, 0, -1)
        self._ring = library.ioring(mount, entries, reads, 0, None, None, -1, FORBID_HOLES)

    def view(self, slot: int) -> memoryview:
        """Memory of a slot."""
        return self._memory[slot * self.slot_bytes : (slot + 1) * self.slot_bytes]

    def begin(self, slot: int, flight: Flight) -> None:
        """Prepare what of a slot is not done. It may begin at once, so the memory is filled.

        Raises:
            OSError: it was not prepared.
        """
        start = slot * self.slot_bytes
        part = self._iov[start + flight.done : start + flight.length]
        self.flights[slot] = flight  # which keeps the number alive, as the library demands
        try:
            self._ring.prepare(part, self._reads, flight.fd, flight.offset + flight.done, slot)
        except OSError:
            del self.flights[slot]
            raise

    def ended(self, limit_s: float) -> list[tuple[int, Flight, int]]:
        """Slots whose operations have ended, and their results; waits for one, for a moment.

        Raises:
            OSError: the ring does not answer.
        """
        if not self.flights:
            return []
        self._ring.submit()
        wait_s = max(0.0, min(limit_s - time.monotonic(), _LOOK_S))
        parts = self._ring.wait(
            max_results=len(self.flights), min_results=1, timeout=timedelta(seconds=wait_s)
        )
        return [(one.userdata, self.flights.pop(one.userdata), one.result) for one in parts]

    def settle(self) -> bool:
        """Have all slots free that nothing is in flight for; whether those are all."""
        with contextlib.suppress(OSError):
            while self.ended(0.0):
                pass
        self.free = [slot for slot in range(self.entries) if slot not in self.flights]
        return not self.flights

    def close(self) -> None:
        """Take its memory back from the client of 3FS."""
        with contextlib.suppress(OSError):
            os.unlink(self._link)


class Channels:
    """Channels of one direction.

    Args:
        library: as of ``Channel``.
        entries: of each.
        most: that are used at one time; as many again may be put aside.
        reads: direction.
    """

    def __init__(self, library: Any, *, entries: int, most: int, reads: bool) -> None:
        self._library, self._entries, self._most, self._reads = library, entries, most, reads
        self._changed = threading.Condition()
        self._idle: list[Channel] = []
        self._aside: list[Channel] = []
        self._used = 0

    @contextlib.contextmanager
    def one(self, mount: str, slot_bytes: int, deadline_s: float) -> Iterator[Channel | None]:
        """A channel for this thread within the context; None: none became free.

        Raises:
            OSError: none can be made.
        """
        channel = self._take(mount, slot_bytes, deadline_s)
        try:
            yield channel
        finally:
            if channel is not None:
                self._give_back(channel)

    def close(self) -> None:
        """Give all up that nothing is in flight in; the memory of others stays."""
        with self._changed:
            for channel in self._idle:
                channel.close()
            self._idle.clear()

    def _take(self, mount: str, slot_bytes: int, deadline_s: float) -> Channel | None:
        with self._changed:
            while True:
                self._look_at_those_aside()
                if self._used < self._most and len(self._aside) < self._most:
                    break
                left_s = min(deadline_s - time.monotonic(), _LOOK_S)
                if left_s <= 0:
                    return None
                self._changed.wait(left_s)
            self._used += 1
            while self._idle:
                channel = self._idle.pop()
                if channel.slot_bytes >= slot_bytes:
                    return channel
                channel.close()
        try:
            return Channel(
                self._library,
                mount,
                entries=self._entries,
                slot_bytes=slot_bytes,
                reads=self._reads,
            )
        except BaseException:
            with self._changed:
                self._used -= 1
            raise

    def _give_back(self, channel: Channel) -> None:
        is_free = channel.settle()
        with self._changed:
            self._used -= 1
            (self._idle if is_free else self._aside).append(channel)
            self._changed.notify()

    def _look_at_those_aside(self) -> None:
        settled = [channel for channel in self._aside if channel.settle()]
        self._aside = [channel for channel in self._aside if channel not in settled]
        self._idle += settled
