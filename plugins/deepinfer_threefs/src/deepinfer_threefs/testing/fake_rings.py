"""What do the rings and the memory of the fake do?

What the other side does happens while this one calls: a look at a ring begins what may begin, and
has its result, which comes out later and in any order.
"""

from __future__ import annotations

import errno
import os
import random
import re
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from deepinfer_threefs.testing.fake_files import FakeFiles, Registered

__all__ = ["FORBID_HOLES", "FakeIoring", "FakeIovec", "FakeMount", "Habits"]

FORBID_HOLES = 2
"""HF3FS_IOR_FORBID_READ_HOLES."""

_LONGEST_WAIT_S = 30.0
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")


@dataclass(slots=True, kw_only=True)
class Habits:
    """How a fake behaves; may be changed while it is used.

    Attributes:
        seed: of the order in which operations end.
        is_eager: operations begin when they are prepared, before anything else can be done.
        delay_s: that they take.
        pending: of the next reads so many meet a version that is not committed, and fail.
        lost: of the next operations so many never end.
        shortened: of the next operations so many stop half-way.
        errors: what the next operations fail with.
        chunk_bytes: holes are made of whole chunks.
    """

    seed: int = 0
    is_eager: bool = True
    delay_s: float = 0.0
    pending: int = 0
    lost: int = 0
    shortened: int = 0
    errors: deque[int] = field(default_factory=deque)
    chunk_bytes: int = 4096


class FakeMount:
    """What rings and memory know of the fake.

    Args:
        mount: an existing folder.
        habits: how it behaves.

    Attributes:
        mount: its path, without links.
        files: below it; ``length_lags`` may be set there.
        rings: that were made.
    """

    def __init__(self, mount: str | os.PathLike[str], habits: Habits | None = None) -> None:
        self.mount = os.path.realpath(mount)
        self.habits = habits or Habits()
        self.files = FakeFiles(self.mount)
        self.rings = 0


@dataclass(slots=True)
class _Operation:
    part: FakeIovec
    is_read: bool
    file: Registered
    offset: int
    userdata: Callable[[], object]
    ready_s: float = 0.0
    result: int = 0


class FakeIovec:
    """Memory that both sides see, or a part of it.

    Attributes:
        result: of the operation that ended with it.
        userdata: that it was prepared with.
    """

    def __init__(
        self,
        fake: FakeMount,
        base: memoryview,
        id: str,
        hf3fs_mount_point: str,
        block_size: int = 0,
        numa: int = -1,
    ) -> None:
        if not _ID.fullmatch(id):
            raise ValueError(f"id '{id}' is not a valid UUID")
        self._fake, self._link_id, self._block_bytes = fake, id, block_size
        self._view, self.base_off = memoryview(base).cast("B"), 0
        self.result = 0
        self.userdata: object = None

    def __getitem__(self, part: slice) -> FakeIovec:
        """A part of it."""
        start, stop, step = part.indices(len(self._view))
        if step != 1:
            raise ValueError("step not 1 when slicing iovec")
        made = object.__new__(FakeIovec)
        made.__dict__.update(self.__dict__)
        made._view, made.base_off = self._view[start:stop], self.base_off + start
        return made

    def memory(self) -> memoryview | int:
        """What an operation reads or writes; or an ``errno`` below zero."""
        suffix = f".b{self._block_bytes}" if self._block_bytes else ""
        link = f"{self._fake.mount}/3fs-virt/iovs/{self._link_id}{suffix}"
        if not os.path.islink(link):  # what it names may be unlinked once it is mapped
            return -errno.EACCES
        last = self.base_off + len(self._view) - 1
        if self._block_bytes and self.base_off // self._block_bytes != last // self._block_bytes:
            return -errno.EINVAL
        return self._view


class FakeIoring:
    """A ring of operations, all of them reads or all of them writes."""

    def __init__(
        self,
        fake: FakeMount,
        hf3fs_mount_point: str,
        entries: int,
        for_read: bool = True,
        io_depth: int = 0,
        priority: int | None = None,
        timeout: int | None = None,
        numa: int = -1,
        flags: int = 0,
    ) -> None:
        if hf3fs_mount_point != fake.mount:
            raise OSError(errno.ENOENT, "no mount of 3FS")
        if entries < 1 or io_depth > entries or (timeout or 0) < 0:
            raise OSError(errno.EINVAL, "no such ring")
        fake.rings += 1
        self.entries = entries
        self._fake, self._is_read, self._flags = fake, for_read, flags
        self._io_depth, self._gather_s = io_depth, (timeout or 0) / 1000
        self._prepared: deque[_Operation] = deque()
        self._begun: list[_Operation] = []
        self._waiting_since_s: float | None = None
        self._random = random.Random(fake.habits.seed + fake.rings)
        self._lock = threading.RLock()

    def prepare(
        self, iov: FakeIovec, read: bool, fd: int, off: int, userdata: object = None
    ) -> FakeIoring:
        """Add an operation on a part of memory.

        Raises:
            OSError: ``EINVAL``, ``EBADF``: not registered, ``EACCES``: not opened for it,
                ``EAGAIN``: the ring is full.
        """
        file = self._fake.files.registered.get(abs(fd))
        if read != self._is_read or not len(iov._view):
            raise OSError(errno.EINVAL, "not of this ring, or empty")
        if file is None:
            raise OSError(errno.EBADF, "the descriptor is not registered")
        if not (file.can_read if read else file.can_write):
            raise OSError(errno.EACCES, "the file was not opened for it")
        with self._lock:
            if len(self._prepared) + len(self._begun) >= self.entries:
                raise OSError(errno.EAGAIN, "the ring is full")
            self._prepared.append(_Operation(iov, read, file, off, _reference(userdata)))
            if self._fake.habits.is_eager:
                self._look()
        return self

    def submit(self) -> FakeIoring:
        """Hint that there is something to do."""
        self._look()
        return self

    def wait(
        self,
        *,
        max_results: int = 0,
        min_results: int = 0,
        timeout: timedelta | None = None,
    ) -> list[FakeIovec]:
        """Parts of memory whose operations have ended."""
        most = max(max_results, min_results)
        until_s = None if timeout is None else time.monotonic() + timeout.total_seconds()
        never_s = time.monotonic() + _LONGEST_WAIT_S
        ended: list[FakeIovec] = []
        while True:
            self._look()
            ended += self._reap(max(most, 1) - len(ended))
            now_s = time.monotonic()
            if len(ended) >= min_results or (until_s is not None and now_s >= until_s):
                return ended
            if now_s > never_s:
                raise AssertionError("nothing that would ever end the wait")
            time.sleep(1e-4)

    def _reap(self, most: int) -> list[FakeIovec]:
        with self._lock:
            now_s = time.monotonic()
            done = [one for one in self._begun if one.ready_s <= now_s]
            self._random.shuffle(done)
            for one in done[:most]:
                self._begun.remove(one)
                one.part.result, one.part.userdata = one.result, one.userdata()
            return [one.part for one in done[:most]]

    def _look(self) -> None:
        """What the other side does when it looks at the ring."""
        with self._lock:
            while batch := self._batch_size():
                batch_of = [self._prepared.popleft() for _ in range(batch)]
                self._random.shuffle(batch_of)
                for one in batch_of:
                    self._begin(one)

    def _batch_size(self) -> int:
        there = len(self._prepared)
        if self._io_depth > 0:
            return self._io_depth if there >= self._io_depth else 0
        if self._io_depth == 0 or not there:
            return there
        most = -self._io_depth
        if there < most and self._gather_s:
            now_s = time.monotonic()
            self._waiting_since_s = self._waiting_since_s or now_s
            if now_s < self._waiting_since_s + self._gather_s:
                return 0
        self._waiting_since_s = None
        return min(there, most)

    def _begin(self, one: _Operation) -> None:
        habits = self._fake.habits
        one.ready_s = time.monotonic() + habits.delay_s * self._random.random()
        self._begun.append(one)
        if habits.lost:
            habits.lost -= 1
            one.ready_s = float("inf")
            return
        if habits.errors:
            one.result = -habits.errors.popleft()
            return
        if habits.pending and one.is_read:
            habits.pending -= 1
            one.result = -errno.EIO  # what a version that is not committed comes out as
            return
        memory = one.part.memory()
        if isinstance(memory, int):
            one.result = memory
            return
        if habits.shortened:
            habits.shortened -= 1
            memory = memory[: max(1, len(memory) // 2)]
        files = self._fake.files
        if one.is_read:
            fills = not self._flags & FORBID_HOLES
            one.result = files.read(one.file, memory, one.offset, fills_holes=fills)
        else:
            one.result = files.write(one.file, bytes(memory), one.offset)


def _reference(userdata: object) -> Callable[[], object]:
    """Does not keep it alive, where that can be told."""
    try:
        reference = weakref.ref(userdata)
    except TypeError:
        return lambda: userdata

    def look() -> object:
        found = reference()
        if found is None:
            raise AssertionError("userdata did not outlive its operation")
        return found

    return look
