"""How is the room of records that are not kept any more given back?

Whoever sweeps tidies up, in anybody's files that nobody writes to: those that are sealed, and those
that have not grown for an hour. A file without records that count is removed; one with few of them
is removed once they were written to another; in the others holes are punched where the file system
can. All of it may be done twice, and broken off anywhere: a record lies in its new place before it
leaves the old one. Whoever reads meanwhile finds zeros, or no file, which is a miss.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass

from deepinfer_core.interfaces.kv_store import Outcome
from deepinfer_core.stores.calls import is_late
from deepinfer_core.stores.records import HEADER_BYTES, read_facts

from deepinfer_threefs.catalogue import Catalogue, Segment
from deepinfer_threefs.medium import Extent, PosixMedium, Span
from deepinfer_threefs.segments import PAGE_BYTES, is_blank
from deepinfer_threefs.writer import Writer

__all__ = ["ABANDONED_S", "Collector"]

ABANDONED_S = 3600.0
"""A file that has not grown for so long has no writer: those leave an idle file long before."""

_LEAST_LIVE_RATIO = 0.25
"""A file with less that counts is written anew."""

_MOVED_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Collector:
    """Tidies up; for one thread at a time.

    Attributes:
        catalogue: says what counts.
        writer: takes what is moved.
        medium: of the files.
    """

    catalogue: Catalogue
    writer: Writer
    medium: PosixMedium

    def collect(self, deadline_s: float) -> None:
        """Give room back until the deadline.

        Raises:
            OSError: a file could not be read or changed; others may have been.
        """
        for segment in self._segments():
            if is_late(deadline_s):
                return
            with contextlib.suppress(FileNotFoundError):
                self._collect(segment, deadline_s)

    def free_dead(self) -> None:
        """Give back what costs little.

        Raises:
            OSError: a file could not be changed.
        """
        for segment in self._segments():
            with contextlib.suppress(FileNotFoundError):
                if not self._remove_if_unused(segment):
                    self._free(segment, must_erase=False)

    def erase(self) -> None:
        """Let no byte of what is not kept be left where this process may write.

        Raises:
            OSError: some may be left.
        """
        for segment in self._segments():
            with contextlib.suppress(FileNotFoundError):
                if not self._remove_if_unused(segment):
                    self._free(segment, must_erase=True)

    def _segments(self) -> Iterable[Segment]:
        with self.catalogue.lock:
            return list(self.catalogue.segments.values())

    def _is_complete(self, segment: Segment) -> bool:
        """Whether nobody writes to it any more."""
        if segment.is_growing and not segment.is_own:
            still_s = time.monotonic() - segment.still_since_s
            return segment.seen_bytes > 0 and still_s > ABANDONED_S
        return not segment.is_growing

    def _collect(self, segment: Segment, deadline_s: float) -> None:
        if self._remove_if_unused(segment):
            return
        if self._is_complete(segment) and not segment.is_lasting:
            with self.catalogue.lock:
                live = len(segment.live) * segment.head.stride_bytes
            if live < _LEAST_LIVE_RATIO * (segment.scanned_bytes - PAGE_BYTES):
                self._move_all(segment, deadline_s)
                if self._remove_if_unused(segment):
                    return
        self._free(segment, must_erase=False)

    def _remove_if_unused(self, segment: Segment) -> bool:
        with self.catalogue.lock:
            if segment.live or segment.is_lasting or not self._is_complete(segment):
                return False
            self.catalogue.vanished(segment.path)
        self.medium.forget(segment.path)
        os.unlink(segment.path)
        return True

    def _free(self, segment: Segment, *, must_erase: bool) -> None:
        with self.catalogue.lock:
            if not (segment.is_own or self._is_complete(segment)):
                return
            dead = sorted(segment.dead)
        if not dead:
            return
        stride = segment.head.stride_bytes
        gone = self.medium.free(segment.path, _joined(dead, stride), must_erase=must_erase)
        freed = [
            offset
            for offset in dead
            if any(start <= offset and offset + stride <= end for start, end in gone)
        ]
        with self.catalogue.lock:
            segment.dead.difference_update(freed)

    def _move_all(self, segment: Segment, deadline_s: float) -> None:
        """Write the records that count to another file; damaged ones are left out."""
        with self.catalogue.lock:
            offsets = sorted(segment.live)
        for start in range(0, len(offsets), _MOVED_AT_ONCE):
            if is_late(deadline_s):
                return
            self._move(segment, offsets[start : start + _MOVED_AT_ONCE], deadline_s)

    def _move(self, segment: Segment, offsets: list[int], deadline_s: float) -> None:
        length = HEADER_BYTES + segment.head.block_bytes
        records: dict[int, bytes] = {}
        for moved in self.medium.read(
            [Span(segment.path, offset, length) for offset in offsets], deadline_s
        ):
            if isinstance(moved.found, OSError):
                raise moved.found
            records[offsets[moved.number]] = bytes(moved.found)
        whole = [
            offset
            for offset, record in sorted(records.items())
            if len(record) == length
            and not is_blank(record[:HEADER_BYTES])
            and not isinstance(read_facts(memoryview(record)), Outcome)
        ]
        places = self.writer.append(
            segment.head,
            [records[offset] for offset in whole],
            begun_after_s=segment.head.begun_s,
        )
        to = dict(zip(whole, places, strict=True))
        with self.catalogue.lock:
            for offset in records:
                address = segment.live.get(offset)
                kept = self.catalogue.shelf.get(address) if address else None
                if address is None or kept is None:
                    if offset in to:
                        to[offset].segment.dead.add(to[offset].offset)
                elif offset in to:
                    self.catalogue.move(address, kept, to[offset].segment, to[offset].offset)
                else:
                    self.catalogue.shelf.remove([address], "damaged")


def _joined(offsets: list[int], stride: int) -> list[Extent]:
    """Spans of records, neighbours in one."""
    spans: list[Extent] = []
    for offset in offsets:
        if spans and spans[-1][1] == offset:
            spans[-1] = (spans[-1][0], offset + stride)
        else:
            spans.append((offset, offset + stride))
    return spans
