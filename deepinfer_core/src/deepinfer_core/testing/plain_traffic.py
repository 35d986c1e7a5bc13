"""Which traffic between an engine and a store has no process in between?

``PlainTraffic`` calls a store itself, so that a test decides when things happen: everything that
was asked for happens in the next ``poll``, or in a later one.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile

from deepinfer_core.interfaces.kv_store import BlockGroup, KvStore, StoreItem
from deepinfer_core.stores.traffic import (
    Arrived,
    BlockTraffic,
    Ended,
    Finished,
    Found,
    News,
    Slot,
    TrafficCounts,
    Wanted,
)

__all__ = ["PlainTraffic"]

_FOREVER_S = 1e9


@dataclass(slots=True)
class _Under:
    """A prefix on its way: so many of its blocks are there, and so many of them have come."""

    ticket: int
    wanted: Wanted
    blocks: int = -1
    come: int = 0
    polls: int = 0


class PlainTraffic(BlockTraffic):
    """The engine's end, and all there is behind it.

    Args:
        store: is open for the groups.
        slots: of each group.
        batch_blocks: blocks that come at once.
        late_polls: how often nothing is said before anything is.
        meanwhile: called by whoever waits.

    Attributes:
        is_hung: nothing is said any more.
        wanted: everything that was asked for.
        stored: keys that were handed over, by group, in order.
    """

    def __init__(
        self,
        store: KvStore,
        *,
        slots: int = 64,
        batch_blocks: int = 4,
        late_polls: int = 0,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        self.store = store
        self.is_hung = False
        self.wanted: list[Wanted] = []
        self.stored: dict[str, list[bytes]] = {name: [] for name in store.groups}
        self._batch_blocks = batch_blocks
        self._late_polls = late_polls
        self._meanwhile = meanwhile
        self._tickets = count(1)
        self._under: dict[int, _Under] = {}
        self._news: deque[News] = deque()
        self._generations: Counter[tuple[str, int]] = Counter()
        self._memory = {
            name: [bytearray(group.block_bytes) for _ in range(slots)]
            for name, group in store.groups.items()
        }
        self._free = {name: list(range(slots)) for name in store.groups}
        self._counts: Counter[str] = Counter()
        self._written: Counter[str] = Counter()
        self._ended: Counter[str] = Counter()
        self._slots = slots

    @property
    def groups(self) -> Mapping[str, BlockGroup]:
        """Those of the store."""
        return self.store.groups

    @property
    def slots_out(self) -> int:
        """Slots that somebody has."""
        return sum(self._slots - len(free) for free in self._free.values())

    def want(self, wanted: Wanted) -> int:
        """Note what is wanted."""
        ticket = next(self._tickets)
        self.wanted.append(wanted)
        self._under[ticket] = _Under(ticket, wanted)
        return ticket

    def cancel(self, ticket: int) -> None:
        """Forget it, and take back what nobody saw."""
        self._under.pop(ticket, None)
        kept: deque[News] = deque()
        for news in self._news:
            if news.ticket != ticket:
                kept.append(news)
            elif isinstance(news, Arrived):
                self.give_back(news.slots)
        self._news = kept

    def poll(self) -> list[News]:
        """Do one piece of work for each prefix, and say what came of it."""
        if self.is_hung:
            return []
        for one in list(self._under.values()):
            one.polls += 1
            if one.polls > self._late_polls:
                self._advance(one)
        news, self._news = list(self._news), deque()
        return news

    def wait(self, seconds: float) -> None:
        """News is made when it is asked for."""
        self._meanwhile()
        if self.is_hung:
            time.sleep(min(seconds, 0.001))

    def give_back(self, slots: Sequence[Slot]) -> None:
        """Take slots back."""
        for slot in slots:
            place = slot.group, slot.number
            if self._generations[place] != slot.generation or slot.number in self._free[slot.group]:
                raise ValueError(f"slot {place} is given back twice")
            self._generations[place] += 1
            self._free[slot.group].append(slot.number)

    def empty_slots(self, group: str, wanted: int) -> list[Slot]:
        """Slots, if there are some."""
        return [] if self.is_hung else self._take(group, wanted)

    def hand_over(self, finished: Sequence[Finished]) -> None:
        """Store blocks."""
        for one in finished:
            self.stored[one.slot.group].append(one.key)
            item = StoreItem(
                key=one.key,
                data=bytes(one.slot.view),
                namespace=one.namespace,
                depth=one.depth,
                retention=one.retention,
            )
            [outcome] = self.store.store(one.slot.group, [item], deadline_s=_later())
            self._written[outcome.status] += 1
        self.give_back([one.slot for one in finished])

    def counts(self) -> TrafficCounts:
        """What was done."""
        return TrafficCounts(
            fetched_blocks=self._counts["blocks"],
            fetched_bytes=self._counts["bytes"],
            ended=dict(self._ended),
            written=dict(self._written),
        )

    def close(self) -> None:
        """Nothing is to be ended."""

    def _take(self, group: str, wanted: int) -> list[Slot]:
        free = self._free[group]
        taken = [free.pop(0) for _ in range(min(wanted, len(free)))]
        memory = self._memory[group]
        return [
            Slot(group, number, self._generations[group, number], memoryview(memory[number]))
            for number in taken
        ]

    def _advance(self, one: _Under) -> None:
        wanted = one.wanted
        if one.blocks < 0:
            found = self.store.find(wanted.group, wanted.keys, deadline_s=_later())
            one.blocks = len(list(takewhile(lambda outcome: outcome.status == "hit", found)))
            self._news.append(Found(one.ticket, one.blocks))
        if one.come < one.blocks:
            self._load(one)
        elif one.blocks == 0:
            self._end(one, "miss")
        else:
            self._load_state(one)
            self._end(one, "done")

    def _load(self, one: _Under) -> None:
        wanted, first = one.wanted, one.come
        slots = self._take(wanted.group, min(self._batch_blocks, one.blocks - first))
        keys = wanted.keys[first : first + len(slots)]
        views = [slot.view for slot in slots]
        outcomes = self.store.load(wanted.group, keys, views, deadline_s=_later())
        good = len(list(takewhile(lambda outcome: outcome.status == "hit", outcomes)))
        self.give_back(slots[good:])
        if good:
            remote = frozenset(first + at for at in range(good) if outcomes[at].is_remote)
            self._news.append(Arrived(one.ticket, first, tuple(slots[:good]), remote=remote))
            self._counts["blocks"] += good
            self._counts["bytes"] += sum(len(view) for view in views[:good])
        one.come += good
        if good < len(slots):
            self._end(one, outcomes[good].status)

    def _load_state(self, one: _Under) -> None:
        wanted = one.wanted
        if wanted.state_group is None:
            return
        for place in range(one.blocks - 1, -1, -1):
            for slot in self._take(wanted.state_group, 1):
                [outcome] = self.store.load(
                    wanted.state_group, wanted.keys[place : place + 1], [slot.view],
                    deadline_s=_later(),
                )  # fmt: skip
                if outcome.status == "hit":
                    remote = frozenset([place] if outcome.is_remote else [])
                    self._news.append(Arrived(one.ticket, place, (slot,), True, remote))
                    return
                self.give_back([slot])

    def _end(self, one: _Under, reason: str) -> None:
        del self._under[one.ticket]
        self._ended[reason] += 1
        self._news.append(Ended(one.ticket, reason))


def _later() -> float:
    return time.monotonic() + _FOREVER_S
