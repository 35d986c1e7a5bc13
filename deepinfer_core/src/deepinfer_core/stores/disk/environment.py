"""Who may read and write the memory map of a store now, and what happened if nobody may?

One process writes, held apart by a lock on a file that ends with it; any number read. Within the
process one thread writes at a time. Closing waits until nobody looks at the map any more, because
memory that is unmapped under a reader ends the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import lmdb

from deepinfer_core.errors import ConfigError

__all__ = [
    "RENEW",
    "Environment",
    "NoRoom",
    "NotNow",
    "OtherForm",
    "Unusable",
    "as_unusable",
    "is_damage",
]

_READERS = 1024
"""Reads at one time, of all processes; a slot takes 64 bytes."""
_DATABASES = 8
_SPARE_BYTES = 4 << 20
"""Pages to remove records with, where the capacity was lowered below what is kept."""

_DAMAGE = (
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    # "Internal errors": pages that are full, or nested without end, as no writer leaves them.
    lmdb.PageFullError,
    lmdb.CursorFullError,
    # Entries that nobody wrote.
    struct.error,
    UnicodeDecodeError,
)

RENEW = (
    "the file is damaged: end what uses it and remove the files of the folder; the cache is cold"
    " then"
)
"""What to do about damage."""


class Unusable(Exception):
    """The store cannot do it now; the message says why."""


class NoRoom(Unusable):
    """The map is full."""


class OtherForm(Unusable):
    """Another version of the software wrote the tables."""


class NotNow(Unusable):
    """Another thread writes, and the deadline has passed."""


class Environment:
    """An open map.

    Args:
        folder: of the store; made if this process writes.
        map_bytes: size of the map; larger if the file is.
        writes: whether this process is the one that writes.
        durable: whether a commit is on the disk before it is one.

    Attributes:
        damage: what was found first that shows the file to be damaged; empty: nothing.

    Raises:
        ConfigError: the folder cannot be used, another process writes, or the disk is too small.
    """

    def __init__(self, folder: Path, *, map_bytes: int, writes: bool, durable: bool) -> None:
        self.damage = ""
        self._lock_file: IO[bytes] | None = None
        self._write_lock = threading.Lock()
        self._users = 0
        self._is_closing = False
        self._changed = threading.Condition()
        try:
            _check_folder(folder, writes=writes)
            if writes:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._lock_file = _only_writer(folder)
                map_bytes = _spacious(folder, map_bytes)
            self._lmdb = lmdb.Environment(
                str(folder),
                map_size=map_bytes,
                max_dbs=_DATABASES,
                max_readers=_READERS,
                max_spare_txns=8,
                mode=0o600,
                readonly=not writes,
                create=writes,
                sync=durable,
                metasync=durable,
            )
            self._fill_up(folder / "data.mdb")
        except (OSError, lmdb.Error) as error:
            self._unlock()
            raise ConfigError(
                f"the store in {folder} cannot be opened: {error}",
                hint=RENEW
                if isinstance(error, _DAMAGE)
                else "the process that writes makes it; check the folder and its permissions",
            ) from error
        except ConfigError:
            self._unlock()
            raise

    @property
    def page_bytes(self) -> int:
        """Bytes of a page."""
        return int(self._lmdb.stat()["psize"])

    def table(self, name: bytes, txn: lmdb.Transaction[bytes] | None) -> lmdb._Database:
        """A named table; made if a transaction that writes is given.

        Raises:
            Unusable: there is none.
        """
        with as_unusable():
            return self._lmdb.open_db(name, txn=txn, create=txn is not None)

    @contextlib.contextmanager
    def reading(self) -> Iterator[lmdb.Transaction[memoryview]]:
        """Read one state of the store; what is read is valid within the context.

        Raises:
            Unusable: the map is closed, or cannot be read.
        """
        with self._using():
            with as_unusable():
                txn = self._lmdb.begin(buffers=True)
            try:
                yield txn
            finally:
                txn.abort()

    @contextlib.contextmanager
    def writing(self, deadline_s: float) -> Iterator[lmdb.Transaction[bytes]]:
        """Write; all of it is committed at the end, or none.

        Raises:
            NotNow: another thread wrote until the deadline.
            NoRoom: the map is full.
            Unusable: the map is closed, or cannot be written to.
        """
        with (
            self._using(),
            self._alone(deadline_s),
            as_unusable(),
            self._lmdb.begin(write=True) as txn,
        ):
            yield txn

    def forget_dead_readers(self) -> None:
        """Free what processes hold that died while they read."""
        with contextlib.suppress(lmdb.Error, Unusable), self._using():
            self._lmdb.reader_check()

    def close(self) -> None:
        """Wait for all users, then unmap."""
        with self._changed:
            self._is_closing = True
            self._changed.wait_for(lambda: self._users == 0)
        self._lmdb.close()
        self._unlock()

    @contextlib.contextmanager
    def _using(self) -> Iterator[None]:
        with self._changed:
            if self._is_closing:
                raise Unusable("the store is closed")
            self._users += 1
        try:
            yield
        except Unusable as error:
            self.damage = self.damage or (str(error) if is_damage(error) else "")
            raise
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def _alone(self, deadline_s: float) -> Iterator[None]:
        wait_s = min(max(deadline_s - time.monotonic(), 0.0), threading.TIMEOUT_MAX)
        if not self._write_lock.acquire(timeout=wait_s):
            raise NotNow("another thread writes")
        try:
            yield
        finally:
            self._write_lock.release()

    def _fill_up(self, data: Path) -> None:
        """Make a file that was cut off as long as it says; what is missing reads as zeros then.

        To look at memory behind a file's end ends the process; zeros are damage like any other.
        While another process writes the file is left alone: that one has seen to it.
        """
        wanted = (self._lmdb.info()["last_pgno"] + 1) * self.page_bytes
        if data.stat().st_size >= wanted:
            return
        with contextlib.suppress(ConfigError), contextlib.ExitStack() as stack:
            if self._lock_file is None:
                stack.enter_context(_only_writer(data.parent))
            os.truncate(data, wanted)

    def _unlock(self) -> None:
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None


@contextlib.contextmanager
def as_unusable() -> Iterator[None]:
    """Tell what the library says in the words of this room.

    Raises:
        NoRoom: the map is full.
        Unusable: something else failed.
    """
    try:
        yield
    except lmdb.MapFullError as error:
        raise NoRoom(_reason(error)) from error
    except (struct.error, UnicodeDecodeError) as error:
        raise Unusable("an entry of the index has changed") from error
    except (lmdb.Error, OSError) as error:
        raise Unusable(_reason(error)) from error


def _check_folder(folder: Path, *, writes: bool) -> None:
    """Say what the library would say in other words.

    Raises:
        ConfigError: it cannot be a store, or is none yet.
        OSError: it cannot be looked at.
    """
    if folder.is_file():
        raise ConfigError(
            f"the store cannot be opened: {folder} is a file, not a folder",
            hint="name a folder, or remove the file",
        )
    if not writes and folder.is_dir() and not (folder / "data.mdb").exists():
        raise ConfigError(
            f"the store in {folder} cannot be opened: nothing was stored there yet",
            hint="the process that writes makes it with its start",
        )


def _only_writer(folder: Path) -> IO[bytes]:
    """Become the process that writes, until the file is closed or the process ends."""
    file = (folder / "writer.lock").open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise ConfigError(
            f"another process, or another store of this one, writes to {folder}",
            hint="one writes: end it, or set writes = false here",
        ) from None
    return file


def _spacious(folder: Path, map_bytes: int) -> int:
    """Size of the map: what was asked for, or a little more than a file that is larger.

    A file never shrinks; and in a map without free pages nothing can even be removed.

    Raises:
        ConfigError: the disk has no room for it; says how much there is.
    """
    data = folder / "data.mdb"
    taken = 0
    if data.exists():
        taken = data.stat().st_blocks * 512
        if data.stat().st_size > map_bytes:
            map_bytes = data.stat().st_size + _SPARE_BYTES
    free = shutil.disk_usage(folder).free
    if map_bytes > taken + free:
        raise ConfigError(
            f"the store in {folder} may take {map_bytes} bytes, found {taken + free} free",
            hint="lower capacity_bytes",
        )
    return map_bytes


def is_damage(error: Unusable) -> bool:
    """Whether a file is not what it should be, and stays so."""
    return isinstance(error.__cause__, _DAMAGE)


def _reason(error: Exception) -> str:
    """One line, without the path."""
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return str(error).rpartition(": ")[2] or type(error).__name__
