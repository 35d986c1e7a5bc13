"""Which blocks are in the pool, under what were they stored, and which of them have to go?

The master lists names, and the first bytes of each object say the rest. A process that stays reads
each header once, as long as its name is listed, and once more when its time has come.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from deepinfer_core.errors import EngineError
from deepinfer_core.interfaces.kv_store import Outcome
from deepinfer_core.interfaces.kv_upkeep import BlockFacts, Departed
from deepinfer_core.stores.calls import LATE, Tally, is_late
from deepinfer_core.stores.records import HEADER_BYTES, RecordFacts, read_facts

from deepinfer_cluster.admin import Admin, NotTold
from deepinfer_cluster.lanes import NoAnswer
from deepinfer_cluster.link import Link
from deepinfer_cluster.pool import INVALID, Names, is_gone, problem_of

__all__ = ["Census"]

_MOST_HEADS = 256
"""Headers in a call; on a network each of them is a transfer of its own."""

_PURGE_S = 600.0
"""A purge has no deadline of its own; one that takes longer is given up."""

Head = RecordFacts | Outcome
"""What the beginning of an object says, or why it says nothing."""


class Census:
    """Of the blocks of one pool.

    Args:
        link: to the pool.
        admin: of its master.
        names: of its blocks.
        expires_s: when a block expires, in seconds since 1970.
        tally: counts what is removed.
        lane_bytes: that headers of one call fit into.
    """

    def __init__(
        self,
        link: Link,
        admin: Admin,
        names: Names,
        *,
        expires_s: Callable[[RecordFacts], float],
        tally: Tally,
        lane_bytes: int,
    ) -> None:
        self._link, self._admin, self._names = link, admin, names
        self._expires_s, self._tally = expires_s, tally
        self._at_once = min(_MOST_HEADS, lane_bytes // HEADER_BYTES)
        self._known: dict[str, float] = {}
        self._listing: dict[str, list[str]] = {}

    def drop(self, namespace: bytes | None) -> int:
        """Remove all blocks of a namespace, or all.

        Raises:
            EngineError: not all could be looked at, or removed.
        """
        deadline_s = time.monotonic() + _PURGE_S
        try:
            if namespace is None:
                return self._drop_all(deadline_s)
            return self._drop_one(namespace, deadline_s)
        except (NoAnswer, NotTold) as error:
            raise EngineError(
                f"asked to drop blocks, found that {error}", hint="repeat it when the pool answers"
            ) from error

    def describe(
        self, group: str, keys: Sequence[bytes], deadline_s: float
    ) -> list[BlockFacts | None]:
        """What blocks are kept under; None where there is none, or no header can be read now."""
        found: dict[bytes, BlockFacts] = {}
        with suppress(NoAnswer):
            for heads in self._heads(self._names.of(group, keys), deadline_s):
                found.update(
                    (head.key, _told(head)) for _, head in heads if isinstance(head, RecordFacts)
                )
        return [found.get(key) for key in keys]

    def survey(self, group: str, after: bytes, most: int, deadline_s: float) -> list[BlockFacts]:
        """Blocks behind a key, in order; of those that there were when it began."""
        page: list[BlockFacts] = []
        with suppress(NoAnswer, NotTold):
            if not after:
                self._listing[group] = sorted(self._listed(group))
            names = self._listing.get(group, [])
            at = bisect_right(names, self._names.of(group, [after])[0]) if after else 0
            while len(page) < most and at < len(names):
                wanted = names[at : at + most - len(page)]
                for heads in self._heads(wanted, deadline_s):
                    page += [_told(head) for _, head in heads if isinstance(head, RecordFacts)]
                at += len(wanted)
        return page

    def discard(self, group: str, keys: Sequence[bytes], deadline_s: float) -> int:
        """Remove single blocks; how many."""
        removed = 0
        with suppress(NoAnswer):
            for _ in self._remove(self._names.of(group, keys), deadline_s):
                self._tally.remove("discarded")
                removed += 1
        return removed

    def sweep(self, now_s: float, deadline_s: float) -> int:
        """Remove what has expired or is damaged in front, as much as there is time for.

        Args:
            now_s: seconds since 1970.
            deadline_s: of ``time.monotonic()``.

        Returns:
            How many blocks were removed.
        """
        removed = 0
        try:
            if is_late(deadline_s):
                return 0
            listed = self._listed()
            self._known = {name: self._known[name] for name in listed if name in self._known}
            unsure = [name for name in listed if self._known.get(name, 0.0) <= now_s]
            for heads in self._heads(unsure, deadline_s):
                told = dict(heads)
                reasons = {name: self._reason(name, head, now_s) for name, head in heads}
                due = [name for name, reason in reasons.items() if reason]
                for name in self._remove(due, deadline_s):
                    self._tally.remove(reasons[name])
                    head = told[name]
                    if isinstance(head, RecordFacts):
                        gone = Departed(head.group, head.key, reasons[name])
                        self._tally.note_departed([gone])
                    removed += 1
        except (NoAnswer, NotTold):
            return removed  # the next sweep goes on
        return removed

    def _reason(self, name: str, head: Head, now_s: float) -> str:
        """Why a block is to go; empty: it stays."""
        if isinstance(head, Outcome):
            return "damaged" if head.status == "corrupt" else ""
        self._known[name] = self._expires_s(head)
        return "expired" if self._known[name] <= now_s else ""

    def _drop_all(self, deadline_s: float) -> int:
        with self._link.lane(deadline_s) as lane:
            removed = self._link.remove_all(lane, self._names.all_of_them, deadline_s)
        if removed < 0:
            raise NoAnswer(problem_of(removed))
        self._tally.remove("dropped", removed)
        return removed

    def _drop_one(self, namespace: bytes, deadline_s: float) -> int:
        removed = unknown = 0
        for heads in self._heads(self._listed(), deadline_s):
            named = []
            for name, head in heads:
                if isinstance(head, Outcome):
                    unknown += head.status not in ("miss", "corrupt")
                elif head.namespace == namespace:
                    named.append(name)
            for _ in self._remove(named, deadline_s):
                self._tally.remove("dropped")
                removed += 1
        if unknown:
            raise EngineError(
                f"asked to drop a namespace, found {unknown} blocks that do not tell theirs",
                hint="repeat it when all nodes answer, or drop everything",
            )
        return removed

    def _listed(self, group: str = "") -> list[str]:
        """Names of all blocks, or of those of a group."""
        return [name for name in self._admin.names() if self._names.is_one(name, group)]

    def _heads(self, names: Sequence[str], deadline_s: float) -> Iterator[list[tuple[str, Head]]]:
        """What objects begin with, a number of them at once.

        Raises:
            NoAnswer: the deadline has passed, or the pool does not answer.
        """
        for chunk in self._chunks(names, deadline_s):
            with self._link.lane(deadline_s) as lane:
                codes = self._link.heads(lane, chunk, HEADER_BYTES, deadline_s)
                view = lane.view
                heads = [
                    (name, _head(code, view[at : at + HEADER_BYTES]))
                    for name, code, at in zip(
                        chunk, codes, range(0, len(view), HEADER_BYTES), strict=False
                    )
                ]
            yield heads

    def _remove(self, names: Sequence[str], deadline_s: float) -> Iterator[str]:
        """Remove objects; those that were there.

        Raises:
            NoAnswer: one could not be removed.
        """
        for chunk in self._chunks(names, deadline_s):
            with self._link.lane(deadline_s) as lane:
                codes = self._link.remove(lane, chunk, deadline_s)
            for name, code in zip(chunk, codes, strict=True):
                if code == 0:
                    yield name
            for code in codes:
                if code < 0 and not is_gone(code):
                    raise NoAnswer(problem_of(code))

    def _chunks(self, names: Sequence[str], deadline_s: float) -> Iterator[list[str]]:
        for start in range(0, len(names), self._at_once):
            if is_late(deadline_s):
                raise NoAnswer(LATE)
            yield list(names[start : start + self._at_once])


def _told(head: RecordFacts) -> BlockFacts:
    return BlockFacts(
        key=head.key, namespace=head.namespace, depth=head.depth, retention=head.retention
    )


def _head(code: int, header: memoryview) -> Head:
    if is_gone(code):
        return Outcome(status="miss")
    if code == INVALID:
        return Outcome(status="corrupt", reason="shorter than a header")
    return read_facts(header) if code == HEADER_BYTES else problem_of(code)
