"""How do many threads read from few open files, none of which is closed under a reader?"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["OpenFiles"]

_MOST_OPEN = 128


@dataclass(slots=True)
class _Open:
    fd: int
    users: int = 0
    is_kept: bool = True


class OpenFiles:
    """Files that are read, the last ones used kept open.

    Args:
        opened: is called with each new descriptor; may raise ``OSError``.
        closing: is called with each descriptor that is about to be closed.
    """

    def __init__(
        self,
        opened: Callable[[int], None] = lambda fd: None,
        closing: Callable[[int], None] = lambda fd: None,
    ) -> None:
        self._opened, self._closing = opened, closing
        self._lock = threading.Lock()
        self._keeps = False
        self._files: OrderedDict[str, _Open] = OrderedDict()

    def begin(self) -> None:
        """Keep files open from now on."""
        self._keeps = True

    @contextlib.contextmanager
    def reading(self, path: str) -> Iterator[int]:
        """A descriptor, open for reading within the context.

        Raises:
            OSError: the file cannot be opened.
        """
        file = self._take(path)
        try:
            yield file.fd
        finally:
            with self._lock:
                file.users -= 1
            self._close_unused(file)

    def forget(self, path: str) -> None:
        """Open the file anew when it is asked for again."""
        with self._lock:
            file = self._files.pop(path, None)
        if file is not None:
            file.is_kept = False
            self._close_unused(file)

    def close(self) -> None:
        """Close all that nobody reads from, and the others as soon as nobody does; keep none."""
        self._keeps = False
        for path in list(self._files):
            self.forget(path)

    def _take(self, path: str) -> _Open:
        with self._lock:
            file = self._files.get(path)
            if file is not None:
                self._files.move_to_end(path)
                file.users += 1
                return file
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._opened(fd)
        except BaseException:
            os.close(fd)
            raise
        new = _Open(fd, users=1)
        surplus: _Open | None = None
        with self._lock:
            if path in self._files or not self._keeps:  # another thread was faster: used once
                new.is_kept = False
            else:
                self._files[path] = new
                if len(self._files) > _MOST_OPEN:
                    _, surplus = self._files.popitem(last=False)
                    surplus.is_kept = False
        if surplus is not None:
            self._close_unused(surplus)
        return new

    def _close_unused(self, file: _Open) -> None:
        with self._lock:
            if file.is_kept or file.users or file.fd < 0:
                return
            fd, file.fd = file.fd, -1
        self._closing(fd)
        with contextlib.suppress(OSError):  # a mount that has lost its server tells it here too
            os.close(fd)
