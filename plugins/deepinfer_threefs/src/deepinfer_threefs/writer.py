"""How do records get into files of this process, and in which order do they become visible?

One file a group is open for writing. It is sealed when it is full, when it has been idle, and when
the store is closed; after a failure it is left as it is, and another one begun. A batch is written,
then on the medium, and only then filed: what nobody waited for may be there after a crash, whole or
as a torn end.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from deepinfer_core.interfaces.kv_store import BlockGroup
from deepinfer_core.stores.disk.clock import Clock

from deepinfer_threefs.catalogue import Catalogue, Segment
from deepinfer_threefs.medium import PosixMedium
from deepinfer_threefs.place import StorePlace, make_private
from deepinfer_threefs.segments import PAGE_BYTES, SegmentHead, pack_seal

__all__ = ["IDLE_S", "Writer", "Written"]

IDLE_S = 600.0
"""An open file that nothing was written to for so long gets no more: others may tidy up in it."""


@dataclass(slots=True)
class _Open:
    segment: Segment
    fd: int
    end_bytes: int
    written_s: float


@dataclass(frozen=True, slots=True)
class Written:
    """Where a record was written."""

    segment: Segment
    offset: int


class Writer:
    """Appends records; for one thread at a time.

    Args:
        place: where files lie, and when they are full; the first record always fits.
        medium: of the files.
        catalogue: gets the files.
        clock: when they are begun, and idle.
    """

    def __init__(
        self, place: StorePlace, *, medium: PosixMedium, catalogue: Catalogue, clock: Clock
    ) -> None:
        self.name = secrets.token_hex(8)
        self._place, self._medium, self._catalogue = place, medium, catalogue
        self._clock = clock
        self._open: dict[tuple[str, bytes, int], _Open] = {}
        self._retired: list[_Open] = []
        self._count = 0

    def append(
        self, group: BlockGroup | SegmentHead, records: Sequence[bytes], *, begun_after_s: float = 0
    ) -> list[Written]:
        """Write records of a group.

        Args:
            group: of the records.
            records: without padding.
            begun_after_s: the file is begun later than this.

        Raises:
            OSError: some may not be there; those of a failed call do not count.
        """
        name = group.group if isinstance(group, SegmentHead) else group.name
        kind = (name, group.layout, group.block_bytes)
        done: list[Written] = []
        touched: list[_Open] = []
        try:
            while len(done) < len(records):
                file = self._file(kind, begun_after_s)
                touched.append(file)
                stride = file.segment.head.stride_bytes
                room = max(1, (self._place.segment_bytes - file.end_bytes) // stride)
                done += self._write(file, records[len(done) : len(done) + room], stride)
            if self._place.durable:
                for file in touched:
                    self._medium.sync(file.fd)
        except OSError:
            self._abandon(kind)
            raise
        finally:
            self._close_retired()
        return done

    def seal_idle(self) -> None:
        """Seal files that nothing was written to for long."""
        now_s = self._clock.steady()
        for kind, file in list(self._open.items()):
            if now_s - file.written_s > IDLE_S / 2:
                self._seal(kind)
        self._close_retired()

    def seal_all(self) -> None:
        """Seal all files; others are begun when there is something to write."""
        for kind in list(self._open):
            self._seal(kind)
        self._close_retired()

    def _file(self, kind: tuple[str, bytes, int], begun_after_s: float) -> _Open:
        file = self._open.get(kind)
        if file is not None:
            stride = file.segment.head.stride_bytes
            is_full = file.end_bytes + stride > self._place.segment_bytes
            is_idle = self._clock.steady() - file.written_s > IDLE_S
            is_late_enough = file.segment.head.begun_s > begun_after_s
            if is_late_enough and not is_idle and not (is_full and file.end_bytes > PAGE_BYTES):
                return file
            self._seal(kind)
        return self._begin(kind, begun_after_s)

    def _begin(self, kind: tuple[str, bytes, int], begun_after_s: float) -> _Open:
        group, layout, block_bytes = kind
        # Whoever begins a file for what is moved begins it later than where that lies.
        begun_s = max(self._clock.wall(), begun_after_s + 1e-3)
        head = SegmentHead(group=group, layout=layout, block_bytes=block_bytes, begun_s=begun_s)
        self._count += 1
        name = f"{self.name}-{self._count:08}.seg"
        lane = make_private(self._place.folder, group, self._place.lane)
        path = os.path.join(lane, name)
        segment = Segment(path=path, name=name, head=head, scanned_bytes=PAGE_BYTES, is_own=True)
        # Known before it is there, so that nobody takes it for another's.
        with self._catalogue.lock:
            self._catalogue.segments[path] = segment
        try:
            fd = self._medium.create(path)
        except OSError:
            with self._catalogue.lock:
                del self._catalogue.segments[path]
            raise
        file = self._open[kind] = _Open(segment, fd, PAGE_BYTES, self._clock.steady())
        try:
            self._medium.write(fd, 0, [head.pack()])
        except OSError:
            self._abandon(kind)
            raise
        if self._place.durable:
            self._sync_folder(lane)
        return file

    def _write(self, file: _Open, records: Sequence[bytes], stride: int) -> list[Written]:
        parts: list[bytes] = []
        for record in records:
            parts += [record, bytes(stride - len(record))]
        self._medium.write(file.fd, file.end_bytes, parts)
        offsets = range(file.end_bytes, file.end_bytes + len(records) * stride, stride)
        file.end_bytes += len(records) * stride
        file.written_s = self._clock.steady()
        with self._catalogue.lock:
            file.segment.scanned_bytes = file.end_bytes
        return [Written(file.segment, offset) for offset in offsets]

    def _seal(self, kind: tuple[str, bytes, int]) -> None:
        file = self._open.pop(kind)
        records = (file.end_bytes - PAGE_BYTES) // file.segment.head.stride_bytes
        with contextlib.suppress(OSError):  # without it others wait longer before they tidy up
            self._medium.write(file.fd, file.end_bytes, [pack_seal(records)])
        self._retire(file)

    def _abandon(self, kind: tuple[str, bytes, int]) -> None:
        """Leave a file behind which may end in anything; what was filed of it can be read."""
        file = self._open.pop(kind, None)
        if file is not None:
            self._retire(file)

    def _retire(self, file: _Open) -> None:
        with self._catalogue.lock:
            file.segment.is_growing = False
        self._retired.append(file)

    def _close_retired(self) -> None:
        for file in self._retired:
            with contextlib.suppress(OSError):
                self._medium.close(file.fd)
        self._retired.clear()

    def _sync_folder(self, lane: str) -> None:
        """Keep the file's name; where folders cannot be synced, that is the server's affair."""
        with contextlib.suppress(OSError):
            fd = os.open(lane, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
