"""How does an engine get blocks from a fetcher, and hand blocks to it?

``FetcherTraffic`` starts it and starts it again if it dies. A thread listens; the engine's calls
change books under a lock that nobody holds for long, and send without waiting. A fetcher that says
nothing ends no wait late: what is overdue ends here as well.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Condition

from msgspec import structs

from deepinfer_core.channel.restarts import Restarts
from deepinfer_core.config.settings import TelemetrySettings
from deepinfer_core.interfaces.kv_store import BlockGroup, StoreItem, StoreReport, check_item
from deepinfer_core.plugin.resolved import Resolved
from deepinfer_core.stores.calls import group_named, require_keys
from deepinfer_core.stores.fetcher.layout import segment_layout
from deepinfer_core.stores.fetcher.messages import (
    Begin,
    Came,
    FromFetcher,
    GiveUp,
    Keep,
    KeepItem,
    Known,
    Opened,
    Over,
    Reported,
    Return,
    Standing,
    Written,
)
from deepinfer_core.stores.fetcher.options import TrafficOptions
from deepinfer_core.stores.fetcher.segment import Segment, new_descriptor
from deepinfer_core.stores.fetcher.slot_books import SlotBooks
from deepinfer_core.stores.fetcher.supervisor import Supervisor
from deepinfer_core.stores.fetcher.tickets import Tickets
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

__all__ = ["FetcherTraffic"]


class FetcherTraffic(BlockTraffic):
    """Waits until the first fetcher has opened the store.

    Args:
        resolved: the choice of components; ``kv_store`` must be filled. Built by the fetcher alone.
        groups: of blocks.
        options: sizes and times.
        telemetry: settings of the fetcher's log.
        restarts: when it is started again.

    Raises:
        DeepInferError: the store cannot be opened, or the budgets have no room for a block.
        OSError: there is no memory, or no process can be started.
    """

    def __init__(
        self,
        resolved: Resolved,
        groups: Sequence[BlockGroup],
        options: TrafficOptions | None = None,
        *,
        telemetry: TelemetrySettings | None = None,
        restarts: Restarts | None = None,
    ) -> None:
        self._groups = {group.name: group for group in groups}
        options = options or TrafficOptions()
        self._begin = Begin(
            resolved=pickle.dumps(resolved),
            path=list(sys.path),
            telemetry=(telemetry or TelemetrySettings()).model_dump_json(),
            groups=list(groups),
            options=options,
            held={},
        )
        layout = segment_layout(
            groups,
            arriving_bytes=options.arriving_bytes,
            departing_bytes=options.departing_bytes,
        )
        self._memory = new_descriptor(layout.size_bytes)
        self._segment = Segment(self._memory, layout)
        self._books = SlotBooks(layout.groups, self._slot, self._segment.renew)
        self._changed = Condition()
        self._news: deque[News] = deque()
        self._tickets = Tickets()
        self._standing, self._is_remote = "", False
        self._reports: dict[str, StoreReport] = {}
        self._supervisor = Supervisor(
            self._memory,
            self._changed,
            begin=lambda: structs.replace(self._begin, held=self._books.held()),
            heard=self._heard,
            gone=self._gone,
            restarts=restarts or Restarts(),
        )
        try:
            self._supervisor.await_opening(options.start_s)
        except BaseException:
            self.close()
            raise

    @property
    def groups(self) -> Mapping[str, BlockGroup]:
        """What it carries."""
        return self._groups

    @property
    def is_remote(self) -> bool:
        """Whether other machines answer, as the store says."""
        return self._is_remote

    @property
    def process_id(self) -> int | None:
        """Of the fetcher; None while there is none."""
        return self._supervisor.process_id

    def want(self, wanted: Wanted) -> int:
        """Ask for a prefix; see ``BlockTraffic``."""
        for group in filter(None, (wanted.group, wanted.state_group)):
            group_named(self._groups, group)
        require_keys(wanted.keys)
        now_s = time.monotonic()
        with self._changed:
            seek = self._tickets.open(wanted, now_s)
            if self._supervisor.is_open:
                self._supervisor.send(seek)
            else:
                self._end(seek.ticket, "unavailable")
        return seek.ticket

    def cancel(self, ticket: int) -> None:
        """Give up a prefix; see ``BlockTraffic``."""
        with self._changed:
            if self._tickets.close(ticket, "cancelled", time.monotonic()):
                self._supervisor.send(GiveUp(ticket))
            unseen = [
                slot
                for one in self._news
                if isinstance(one, Arrived) and one.ticket == ticket
                for slot in one.slots
            ]
            self._news = deque(one for one in self._news if one.ticket != ticket)
            self._return(unseen)

    def poll(self) -> list[News]:
        """What has happened; see ``BlockTraffic``."""
        with self._changed:
            self._end_overdue()
            news = list(self._news)
            self._news.clear()
        return news

    def wait(self, seconds: float) -> None:
        """Wait for news; see ``BlockTraffic``."""
        by_s = time.monotonic() + seconds
        with self._changed:
            while not self._news and (now_s := time.monotonic()) < by_s:
                next_s = self._tickets.next_overdue_s()
                self._changed.wait(min(by_s, next_s) - now_s)
                self._end_overdue()

    def give_back(self, slots: Sequence[Slot]) -> None:
        """Slots are not needed any more; see ``BlockTraffic``."""
        with self._changed:
            self._return(slots)

    def empty_slots(self, group: str, wanted: int) -> list[Slot]:
        """Slots to be filled; see ``BlockTraffic``. None while there is nobody to write them."""
        group_named(self._groups, group)
        with self._changed:
            slots = self._books.lend(group, wanted if self._supervisor.is_open else 0)
            self._tickets.tally.no_slots += wanted - len(slots)
        return slots

    def hand_over(self, finished: Sequence[Finished]) -> None:
        """Let blocks be stored; see ``BlockTraffic``."""
        for one in finished:
            check_item(group_named(self._groups, one.slot.group), _item_of(one))
            require_keys([one.parent] if one.parent else [])
        with self._changed:
            by_group: dict[str, list[KeepItem]] = {}
            for one in finished:
                self._books.hand_over(one.slot)
                by_group.setdefault(one.slot.group, []).append(KeepItem(one.slot.number, *one[1:]))
            for group, items in by_group.items():
                if self._supervisor.is_open:
                    self._supervisor.send(Keep(group, items))
                else:
                    self._books.written(group, [one.number for one in items])
                    self._tickets.tally.written["unavailable"] += len(items)

    def counts(self) -> TrafficCounts:
        """What has happened so far."""
        with self._changed:
            return replace(
                self._tickets.tally.counts(),
                writing=self._books.writing,
                stores=dict(self._reports),
                restarts=self._supervisor.restarted,
                problem=self._supervisor.problem or self._standing,
            )

    def close(self) -> None:
        """End the fetcher; see ``BlockTraffic``."""
        self._supervisor.close()
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1

    def _heard(self, message: FromFetcher) -> None:
        if isinstance(message, Came):
            self._came(message)
        elif isinstance(message, Known):
            if self._tickets.known(message, time.monotonic()):
                self._news.append(Found(message.ticket, message.blocks))
        elif isinstance(message, Over):
            self._end(message.ticket, message.reason)
        elif isinstance(message, Written):
            self._books.written(message.group, message.numbers)
            self._tickets.tally.written.update(message.outcomes)
        elif isinstance(message, Standing):
            self._standing = message.problem
        elif isinstance(message, Reported):
            self._reports[message.store] = message.report
        elif isinstance(message, Opened):
            self._standing, self._is_remote = "", message.is_remote

    def _gone(self) -> None:
        """The fetcher has ended: its slots are empty, and nothing more comes."""
        self._tickets.tally.written["lost"] += self._books.lost()
        for ticket in self._tickets.all():
            self._end(ticket, "lost")

    def _came(self, message: Came) -> None:
        slots = tuple(self._books.came(message.group, number) for number, _ in message.slots)
        if self._tickets.is_open(message.ticket):
            remote = frozenset(message.first + place for place in message.remote)
            self._news.append(
                Arrived(message.ticket, message.first, slots, message.is_state, remote)
            )
            self._tickets.tally.came(len(slots), self._groups[message.group].block_bytes)
        else:
            self._return(slots)

    def _end(self, ticket: int, reason: str) -> None:
        if self._tickets.close(ticket, reason, time.monotonic()):
            self._news.append(Ended(ticket, reason))

    def _end_overdue(self) -> None:
        for ticket in self._tickets.overdue(time.monotonic()):
            self._supervisor.send(GiveUp(ticket))
            self._end(ticket, "timeout")

    def _return(self, slots: Sequence[Slot]) -> None:
        for group, numbers in self._books.give_back(slots).items():
            self._supervisor.send(Return(group, numbers))

    def _slot(self, group: str, number: int) -> Slot:
        return Slot(
            group,
            number,
            self._segment.generation(group, number),
            self._segment.view(group, number),
        )


def _item_of(finished: Finished) -> StoreItem:
    return StoreItem(
        key=finished.key,
        data=finished.slot.view,
        namespace=finished.namespace,
        depth=finished.depth,
        retention=finished.retention,
    )
