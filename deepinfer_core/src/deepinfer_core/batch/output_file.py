"""How does a file of answers survive a kill at any moment?

It only grows, one whole line a write. A kill may leave the beginning of a line at its end, which
the next run cuts off; so a request is either answered by a complete line or runs again. A write
outlives the process at once. It is forced to the disk with the first answer that comes
``SYNC_PERIOD_S`` after the last time, and at the end: a power failure costs the answers since then,
which run again. A lock on the file, which ends with its process, keeps a second run out.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from deepinfer_core.batch.lines import LINE_ID_PREFIX
from deepinfer_core.errors import ConfigError

__all__ = ["SYNC_PERIOD_S", "OutputFile"]

SYNC_PERIOD_S = 1.0
"""A sync takes milliseconds on a disk, so that one for each short answer would set the pace."""

_LINE_BEGINNING = ('{"id": "' + LINE_ID_PREFIX).encode()


class OutputFile:
    """The answers of one run and of those before it.

    Args:
        path: made if it does not exist.
        clock_s: monotonic clock.

    Attributes:
        answered: ``id`` of every answer.
        failed: how many of them are errors.
        fingerprints: of the models that wrote the answers.

    Raises:
        ConfigError: the file cannot be opened, is in use, or holds something else than answers;
            nothing in it was changed.
    """

    def __init__(self, path: Path, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.answered: set[str] = set()
        self.failed = 0
        self.fingerprints: set[str] = set()
        self._path = path
        self._clock_s = clock_s
        self._synced_s = clock_s()
        self._descriptor = _open(path)
        try:
            _lock(self._descriptor, path)
            self._whole_bytes = self._read()
            os.ftruncate(self._descriptor, self._whole_bytes)
            _sync_folder(path.parent)
        except BaseException:
            os.close(self._descriptor)
            raise

    def append(self, answer: dict[str, Any]) -> None:
        """Write one answer as one line.

        Args:
            answer: with ``id`` first, ``response`` and ``error``.

        Raises:
            OSError: the disk is full or failed; the file is cut to whole lines when it is closed.
        """
        # Half a surrogate pair becomes the escape that JSON has for it.
        text = json.dumps(answer, ensure_ascii=False, allow_nan=False)
        rest = memoryview(text.encode("utf-8", "backslashreplace") + b"\n")
        size_bytes = len(rest)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        self._whole_bytes += size_bytes
        self._count(answer)
        if self._clock_s() - self._synced_s >= SYNC_PERIOD_S:
            os.fsync(self._descriptor)
            self._synced_s = self._clock_s()

    def close(self) -> None:
        """Cut off what an interrupt left half written, sync and unlock."""
        try:
            os.ftruncate(self._descriptor, self._whole_bytes)
            os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)

    def __enter__(self) -> Self:
        """The file itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close."""
        self.close()

    def _read(self) -> int:
        """Take in the answers; returns the size of all complete lines."""
        whole_bytes = 0
        with open(self._descriptor, "rb", closefd=False) as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    self._check_torn(number, line)
                    break
                self._count(self._answer(number, line))
                whole_bytes += len(line)
        return whole_bytes

    def _answer(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            found = json.loads(line)
            if found["id"].startswith(LINE_ID_PREFIX) and {"response", "error"} <= found.keys():
                if found["id"] in self.answered:
                    raise ConfigError(
                        f"{self._path}:{number} answers a request that was answered before",
                        hint="remove one of the two lines",
                    )
                return dict(found)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            pass
        raise self._foreign(number)

    def _check_torn(self, number: int, line: bytes) -> None:
        """Refuse to cut off what no run can have written."""
        shared = min(len(line), len(_LINE_BEGINNING))
        if line[:shared] != _LINE_BEGINNING[:shared] and line.strip(b"\0"):
            raise self._foreign(number)

    def _foreign(self, number: int) -> ConfigError:
        return ConfigError(
            f"{self._path}:{number} is no answer of a batch",
            hint="name a new output file; this one was not changed",
        )

    def _count(self, answer: dict[str, Any]) -> None:
        self.answered.add(answer["id"])
        self.failed += answer["error"] is not None
        with contextlib.suppress(KeyError, TypeError):
            self.fingerprints.add(answer["response"]["body"]["system_fingerprint"])


def _open(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror or error}",
            hint="name a file in a folder that exists",
        ) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ConfigError(f"{path} is no file", hint="answers are kept in a file, to go on from")
    return descriptor


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigError(
            f"another run writes to {path}", hint="wait for its end, or name another output"
        ) from error


def _sync_folder(folder: Path) -> None:
    """Make the new file's name last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
