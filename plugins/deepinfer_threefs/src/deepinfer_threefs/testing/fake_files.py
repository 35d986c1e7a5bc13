"""What does the fake's file system do with descriptors, holes and lengths?

Files are plain ones below a folder that plays the mount. A registered descriptor is duplicated, as
the library does it: so its file is the one that it had when it was registered, whatever becomes of
the number.
"""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import dataclass, field

__all__ = ["FakeFiles", "Registered"]


@dataclass(slots=True)
class Registered:
    """A registered descriptor.

    Attributes:
        dup_fd: the library's own descriptor of the same file.
        inode: of the file.
        can_read, can_write: how it was opened.
    """

    dup_fd: int
    inode: int
    can_read: bool
    can_write: bool


@dataclass(slots=True)
class FakeFiles:
    """Files below a mount.

    Attributes:
        mount: the folder.
        length_lags: written bytes show in the file, and in its length, only after ``force_fsync``
            (rings see them at once), as a file's length may on 3FS after native writes.
        registered: by number.
    """

    mount: str
    length_lags: bool = False
    registered: dict[int, Registered] = field(default_factory=dict)
    _unsynced: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def register(self, fd: int) -> None:
        """Make a descriptor usable in rings.

        Raises:
            OSError: ``EBADF``: it is none, or not of the mount; ``EINVAL``: its number is still
                registered, perhaps for a file that was closed.
        """
        with self._lock:
            self._check_mount(fd)
            if fd in self.registered:
                raise OSError(errno.EINVAL, "the number is registered")
            dup_fd = os.dup(fd)
            access = _access(fd)
            # The duplicate's number is registered as well, for the same file.
            self.registered[fd] = self.registered[dup_fd] = Registered(
                dup_fd, os.fstat(fd).st_ino, access != os.O_WRONLY, access != os.O_RDONLY
            )

    def deregister(self, fd: int) -> None:
        """Undo it; nothing happens for what is not registered, or was closed before."""
        with self._lock:
            try:
                self._check_mount(fd)
            except OSError:
                return
            known = self.registered.pop(fd, None)
            if known is not None:
                self.registered.pop(known.dup_fd, None)
                os.close(known.dup_fd)

    def read(self, known: Registered, view: memoryview, offset: int, *, fills_holes: bool) -> int:
        """Read; how many bytes, or an ``errno`` below zero.

        A hole with data behind it, within what is read, is filled with zeros or ``ENODATA``; one at
        the end looks like the end of the file.
        """
        with self._lock:
            found = bytearray()
            while len(found) < len(view):
                some = os.pread(known.dup_fd, len(view) - len(found), offset + len(found))
                if not some:
                    break
                found += some
            extents = _extents(known.dup_fd, offset, len(found))
            for start, data in self._unsynced.get(known.inode, ()):
                first, last = max(start, offset), min(start + len(data), offset + len(view))
                if first < last:
                    found.extend(bytes(max(0, last - offset - len(found))))
                    found[first - offset : last - offset] = data[first - start : last - start]
                    extents.append((first - offset, last - offset))
            covered, has_hole = 0, False
            for first, last in sorted(extents):
                has_hole = has_hole or first > covered
                covered = max(covered, last)
            if has_hole and not fills_holes:
                return -errno.ENODATA
            view[:covered] = found[:covered]
            return covered

    def write(self, known: Registered, data: bytes, offset: int) -> int:
        """Write; how many bytes."""
        with self._lock:
            if self.length_lags:
                self._unsynced.setdefault(known.inode, []).append((offset, data))
                return len(data)
            return os.pwrite(known.dup_fd, data, offset)

    def force_fsync(self, fd: int) -> int:
        """Let the file show what was written; 0, or -1 for what is no file of the mount."""
        with self._lock:
            try:
                self._check_mount(fd)
                with open(f"/proc/self/fd/{fd}", "r+b") as file:
                    for offset, data in self._unsynced.pop(os.fstat(fd).st_ino, ()):
                        file.seek(offset)
                        file.write(data)
            except OSError:
                return -1
            return 0

    def close(self) -> None:
        """Give back what is still registered."""
        with self._lock:
            for dup_fd in {known.dup_fd for known in self.registered.values()}:
                os.close(dup_fd)
            self.registered.clear()

    def _check_mount(self, fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}") if fd >= 0 else ""
        if not path.startswith(self.mount + "/"):
            raise OSError(errno.EBADF, "no file of the mount")


def _access(fd: int) -> int:
    with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as info:
        flags = next(line.split()[1] for line in info if line.startswith("flags:"))
    return int(flags, 8) & os.O_ACCMODE


def _extents(fd: int, offset: int, length: int) -> list[tuple[int, int]]:
    """Where there is data in a span, from its beginning on; the rest are holes."""
    found: list[tuple[int, int]] = []
    at, end = offset, offset + length
    while at < end:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break
            raise
        if start >= end:
            break
        at = os.lseek(fd, start, os.SEEK_HOLE)
        found.append((start - offset, min(at, end) - offset))
    return found
