"""How do blocks come out of the pool, each checked on the way?

Records come into a lane's memory. A block is copied from there to its destination, and the copy is
what is checked. What is not what it should be, or too old, is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from deepinfer_core.interfaces.kv_store import BlockGroup, Outcome
from deepinfer_core.stores.calls import HIT, LATE, MISS, Tally, is_late
from deepinfer_core.stores.record_reader import RecordReader
from deepinfer_core.stores.records import RecordFacts, read_facts

from deepinfer_cluster.lanes import Lane, NoAnswer
from deepinfer_cluster.link import Link
from deepinfer_cluster.places import Places, places_of
from deepinfer_cluster.pool import INVALID, Names, is_gone, problem_of

__all__ = ["Reader"]

_FOUND_AT_ONCE = 4096
"""Names in a call that looks for them, two milliseconds of it."""

_EXPIRED = Outcome(status="miss", reason="expired")
_LENGTH = Outcome(status="corrupt", reason="its record has another length")


class Reader:
    """Of one pool.

    Args:
        link: to it.
        names: of its blocks.
        lane_bytes: memory of a lane.
        is_expired: whether a block is too old.
        tally: counts what is removed.
    """

    def __init__(
        self,
        link: Link,
        names: Names,
        lane_bytes: int,
        *,
        is_expired: Callable[[RecordFacts], bool],
        tally: Tally,
    ) -> None:
        self._link, self._names, self._lane_bytes = link, names, lane_bytes
        self._is_expired, self._tally = is_expired, tally

    def find(self, group: BlockGroup, keys: Sequence[bytes], deadline_s: float) -> list[Outcome]:
        """Ask the master which blocks there are."""
        outcomes: list[Outcome] = []
        for start in range(0, len(keys), _FOUND_AT_ONCE):
            names = self._names.of(group.name, keys[start : start + _FOUND_AT_ONCE])
            if is_late(deadline_s):
                return outcomes + [LATE] * (len(keys) - start)
            try:
                with self._link.lane(deadline_s) as lane:
                    codes = self._link.exist(lane, names, deadline_s)
            except NoAnswer as error:
                return outcomes + [error.outcome] * (len(keys) - start)
            outcomes += [HIT if c > 0 else MISS if c == 0 else problem_of(c) for c in codes]
        return outcomes

    def load(
        self,
        group: BlockGroup,
        keys: Sequence[bytes],
        destinations: Sequence[bytearray | memoryview],
        deadline_s: float,
    ) -> list[Outcome]:
        """Copy blocks out."""
        places, records = places_of(group, self._lane_bytes), RecordReader(group)
        outcomes: list[Outcome] = []
        for start in range(0, len(keys), places.count):
            if is_late(deadline_s):
                return outcomes + [LATE] * (len(keys) - start)
            chunk = keys[start : start + places.count]
            names = self._names.of(group.name, chunk)
            try:
                with self._link.lane(deadline_s) as lane:
                    found = self._read(lane, names, places, deadline_s)
                    loaded = [
                        one if isinstance(one, Outcome) else self._copy(records, one, key, room)
                        for one, key, room in zip(
                            found, chunk, destinations[start : start + places.count], strict=True
                        )
                    ]
                    self._remove(lane, names, loaded, deadline_s)
            except NoAnswer as error:
                return outcomes + [error.outcome] * (len(keys) - start)
            outcomes += loaded
        return outcomes

    def _read(
        self, lane: Lane, names: list[str], places: Places, deadline_s: float
    ) -> list[memoryview | Outcome]:
        """The records, or why there is none."""
        starts = places.at(len(names))
        codes = self._link.get(lane, names, starts, places.record_bytes, deadline_s)
        found: list[memoryview | Outcome] = []
        for name, at, code in zip(names, starts, codes, strict=True):
            if code >= 0:
                found.append(lane.view[at : at + code])
            elif is_gone(code):
                found.append(MISS)
            elif code == INVALID and self._is_longer(lane, name, places, deadline_s):
                found.append(_LENGTH)
            else:
                found.append(problem_of(code))
        return found

    def _is_longer(self, lane: Lane, name: str, places: Places, deadline_s: float) -> bool:
        """Whether an object did not fit: the same answer may mean other things."""
        return self._link.size(lane, name, deadline_s) > places.record_bytes

    def _copy(
        self,
        records: RecordReader,
        record: memoryview,
        key: bytes,
        destination: bytearray | memoryview,
    ) -> Outcome:
        problem = records.copy(record, key, destination)
        if problem is not None:
            return problem
        facts = read_facts(record)
        if isinstance(facts, Outcome):
            return facts
        return _EXPIRED if self._is_expired(facts) else HIT

    def _remove(
        self, lane: Lane, names: list[str], outcomes: Sequence[Outcome], deadline_s: float
    ) -> None:
        """Let what is of no use be stored again; if that cannot be done, somebody does it later."""
        reasons = {
            name: "expired" if outcome is _EXPIRED else "damaged"
            for name, outcome in zip(names, outcomes, strict=True)
            if outcome is _EXPIRED or outcome.status in ("corrupt", "version")
        }
        if not reasons:
            return
        with suppress(NoAnswer):
            codes = self._link.remove(lane, list(reasons), deadline_s)
            for name, code in zip(reasons, codes, strict=True):
                if code == 0:
                    self._tally.remove(reasons[name])
