"""What have others written since the last look?

Directories are listed, the ends of growing files read header by header, and journals from where
they were left. A look ends at its deadline and goes on from there next time. Files are opened anew
for each look, which is when a network file system asks its server for what is new.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Iterator

from deepinfer_core.interfaces.kv_store import Outcome
from deepinfer_core.stores.calls import is_late
from deepinfer_core.stores.records import HEADER_BYTES, read_facts

from deepinfer_threefs import journal, segments
from deepinfer_threefs.catalogue import Catalogue, Segment
from deepinfer_threefs.segments import PAGE_BYTES, SegmentHead

__all__ = ["JOURNALS", "Scanner"]

JOURNALS = ".journals"
"""Subfolder of journals; no group is called so."""

_GROUP_NAME = re.compile(r"[a-z][a-z0-9_]{0,15}")


class Scanner:
    """Looks at a folder.

    Args:
        folder: of the store.
        catalogue: gets what is found.
        writer: name of this process, whose journal is not read.

    Attributes:
        problem: why the last look saw nothing; empty: it saw what there was.
        unreadable: files that it could not read.
    """

    def __init__(self, folder: str, catalogue: Catalogue, writer: str) -> None:
        self.problem, self.unreadable = "", 0
        self._folder, self._catalogue = folder, catalogue
        self._writer = writer
        self._lock = threading.Lock()
        self._read_bytes: dict[str, int] = {}
        self._newest_s: dict[str, float] = {}

    def look(self, deadline_s: float) -> bool:
        """Look once; whether everything was seen before the deadline."""
        with self._lock:
            try:
                if not self._catalogue.segments:
                    self._note_discards()
                self.unreadable = self._look_at_segments(deadline_s)
                is_whole = not is_late(deadline_s)
                if is_whole:
                    self._read_journals()
            except OSError as error:
                self.problem = f"the folder cannot be read: {error.strerror}"
                return False
            self.problem = ""
            return is_whole

    def outdated_journals(self, before_s: float) -> list[str]:
        """Paths of journals of other processes whose last entry is older."""
        with self._lock:
            return [path for path, newest_s in self._newest_s.items() if newest_s < before_s]

    def _look_at_segments(self, deadline_s: float) -> int:
        """Look at all, or until the deadline; how many could not be read."""
        catalogue, unreadable = self._catalogue, 0
        present: set[str] = set()
        for path in self._segment_paths():
            if is_late(deadline_s):
                return unreadable
            present.add(path)
            with catalogue.lock:
                segment = catalogue.segments.get(path)
            if segment is None or (segment.is_growing and not segment.is_own):
                try:
                    self._scan(path, segment, deadline_s)
                except FileNotFoundError:
                    present.discard(path)
                except OSError:
                    unreadable += 1
        self._forget_vanished(present)
        return unreadable

    def _segment_paths(self) -> Iterator[str]:
        for group in _subfolders(self._folder):
            if _GROUP_NAME.fullmatch(os.path.basename(group)):
                for lane in _subfolders(group):
                    for name in sorted(os.listdir(lane)):
                        if segments.FILE_NAME.fullmatch(name):
                            yield os.path.join(lane, name)

    def _forget_vanished(self, present: set[str]) -> None:
        catalogue = self._catalogue
        with catalogue.lock:
            missing = [
                path
                for path, segment in catalogue.segments.items()
                if path not in present and not (segment.is_own and segment.is_growing)
            ]
        for path in missing:
            try:
                os.stat(path)
            except FileNotFoundError:
                with catalogue.lock:
                    catalogue.vanished(path)
            except OSError:
                continue

    def _scan(self, path: str, segment: Segment | None, deadline_s: float) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size_bytes = os.fstat(fd).st_size
            if segment is None:
                segment = self._begin(fd, path)
                if segment is None:
                    return
            if size_bytes != segment.seen_bytes:
                segment.seen_bytes, segment.still_since_s = size_bytes, time.monotonic()
            while segment.is_growing and not is_late(deadline_s):
                if not self._step(fd, segment, size_bytes):
                    return
        finally:
            os.close(fd)

    def _begin(self, fd: int, path: str) -> Segment | None:
        head = SegmentHead.unpack(os.pread(fd, PAGE_BYTES, 0))
        if head is None:
            return None
        segment = Segment(
            path=path,
            name=os.path.basename(path),
            head=head,
            scanned_bytes=PAGE_BYTES,
            is_own=False,
        )
        with self._catalogue.lock:
            return self._catalogue.segments.setdefault(path, segment)

    def _step(self, fd: int, segment: Segment, size_bytes: int) -> bool:
        """Look at one record; whether there may be another one behind it."""
        offset, stride = segment.scanned_bytes, segment.head.stride_bytes
        header = os.pread(fd, HEADER_BYTES, offset)
        if segments.is_seal(header, (offset - PAGE_BYTES) // stride):
            segment.is_growing = False
            return False
        if offset + stride > size_bytes:
            return False  # the end is not there yet, or was torn off
        is_last = offset + stride == size_bytes
        facts = read_facts(memoryview(header))
        with self._catalogue.lock:
            if not isinstance(facts, Outcome):
                if facts.data_bytes == segment.head.block_bytes:
                    self._catalogue.found(segment, offset, facts)
                else:
                    segment.dead.add(offset)
            elif facts.status == "version":
                segment.is_lasting = True
            elif is_last:
                return False  # it may still come; a header is no shorter than what is written once
            elif not segments.is_blank(header):
                segment.dead.add(offset)
            segment.scanned_bytes = offset + stride
        return True

    def _note_discards(self) -> None:
        """Before any record is found: of two with one key, that was discarded must never count."""
        for path in self._journals():
            with contextlib.suppress(FileNotFoundError):
                for entry in self._new_entries(path):
                    if entry is not None and entry.kind == journal.DISCARDED:
                        self._catalogue.discards.note(entry)

    def _read_journals(self) -> None:
        paths = self._journals()
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                self._read_journal(path)
        for path in self._read_bytes.keys() - set(paths):
            del self._read_bytes[path]
            self._newest_s.pop(path, None)

    def _journals(self) -> list[str]:
        """Paths of those of other processes."""
        folder = os.path.join(self._folder, JOURNALS)
        try:
            names = sorted(os.listdir(folder))
        except FileNotFoundError:
            return []
        return [
            os.path.join(folder, name)
            for name in names
            if journal.FILE_NAME.fullmatch(name) and not name.startswith(self._writer)
        ]

    def _read_journal(self, path: str) -> None:
        entries = self._new_entries(path)
        with self._catalogue.lock:
            for entry in entries:
                if entry is not None:
                    self._catalogue.apply(entry)
                    self._newest_s[path] = max(self._newest_s.get(path, 0.0), entry.at_s)
        read_bytes = len(entries) * journal.ENTRY_BYTES
        self._read_bytes[path] = self._read_bytes.get(path, 0) + read_bytes

    def _new_entries(self, path: str) -> list[journal.Entry | None]:
        start = self._read_bytes.get(path, 0)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            length = os.fstat(fd).st_size - start
            data = os.pread(fd, max(0, length), start)
        finally:
            os.close(fd)
        entries = list(journal.unpack_entries(data))
        while entries and entries[-1] is None:
            entries.pop()  # torn, or not there yet
        return entries


def _subfolders(folder: str) -> list[str]:
    """Paths, in order.

    Raises:
        OSError: the folder cannot be read.
    """
    with os.scandir(folder) as entries:
        return sorted(entry.path for entry in entries if entry.is_dir())
