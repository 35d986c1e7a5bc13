"""How do blocks come into the pool, without holes in their chains?

One call at a time: the pool says the same of what it stored and of what was there before, so
whoever wants to know looks first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from deepinfer_core.interfaces.kv_store import BlockGroup, Outcome, StoreItem
from deepinfer_core.stores.calls import EXISTS, LATE, STORED, is_late
from deepinfer_core.stores.records import pack_record

from deepinfer_cluster.lanes import Lane, NoAnswer
from deepinfer_cluster.link import Link
from deepinfer_cluster.places import Places, places_of
from deepinfer_cluster.pool import Names, problem_of

__all__ = ["Writer"]


class Writer:
    """Of one pool.

    Args:
        link: to it.
        names: of its blocks.
        lane_bytes: memory of a lane.
        wall: seconds since 1970.
    """

    def __init__(
        self, link: Link, names: Names, lane_bytes: int, *, wall: Callable[[], float]
    ) -> None:
        self._link, self._names, self._lane_bytes = link, names, lane_bytes
        self._wall = wall
        self._turn = threading.Lock()

    def keep(
        self, group: BlockGroup, items: Sequence[StoreItem], deadline_s: float
    ) -> list[Outcome]:
        """Store blocks, up to the first that cannot be; its outcome is that of the rest."""
        wait_s = min(max(deadline_s - time.monotonic(), 0.0), threading.TIMEOUT_MAX)
        if not self._turn.acquire(timeout=wait_s):
            return [LATE] * len(items)
        try:
            return self._keep(group, items, deadline_s)
        finally:
            self._turn.release()

    def _keep(
        self, group: BlockGroup, items: Sequence[StoreItem], deadline_s: float
    ) -> list[Outcome]:
        places = places_of(group, self._lane_bytes)
        outcomes: list[Outcome] = []
        for start in range(0, len(items), places.count):
            chunk = items[start : start + places.count]
            try:
                if is_late(deadline_s):
                    raise NoAnswer(LATE)
                with self._link.lane(deadline_s, writes=True) as lane:
                    kept, problem = self._keep_some(lane, group, chunk, places, deadline_s)
            except NoAnswer as error:
                kept, problem = [], error.outcome
            outcomes += kept
            if problem is not None:
                return outcomes + [problem] * (len(items) - len(outcomes))
        return outcomes

    def _keep_some(
        self,
        lane: Lane,
        group: BlockGroup,
        items: Sequence[StoreItem],
        places: Places,
        deadline_s: float,
    ) -> tuple[list[Outcome], Outcome | None]:
        """Store what fits into a lane.

        Returns:
            Outcomes of the first items, and of the one behind them why it was not kept.
        """
        names = self._names.of(group.name, [item.key for item in items])
        unique = list(dict.fromkeys(names))
        codes = dict(zip(unique, self._link.exist(lane, unique, deadline_s), strict=True))
        fresh = {
            name: item
            for name, item in reversed(list(zip(names, items, strict=True)))
            if codes[name] == 0
        }
        fresh = dict(reversed(fresh.items()))
        starts = places.at(len(fresh))
        for at, item in zip(starts, fresh.values(), strict=True):
            lane.view[at : at + places.record_bytes] = pack_record(group, item, self._wall())
        if fresh:
            put = self._link.put(lane, list(fresh), starts, places.record_bytes, deadline_s)
            codes.update(zip(fresh, put, strict=True))
        outcomes: list[Outcome] = []
        for number, name in enumerate(names):
            if codes[name] < 0:
                self._undo(lane, [one for one in names[number:] if one in fresh], deadline_s)
                return outcomes, problem_of(codes[name])
            is_first = name in fresh and name not in names[:number]
            outcomes.append(STORED if is_first else EXISTS)
        return outcomes, None

    def _undo(self, lane: Lane, names: Sequence[str], deadline_s: float) -> None:
        """Remove what lies behind a hole; if that cannot be done it is unreachable, not wrong."""
        with suppress(NoAnswer):
            self._link.remove(lane, list(dict.fromkeys(names)), deadline_s)
