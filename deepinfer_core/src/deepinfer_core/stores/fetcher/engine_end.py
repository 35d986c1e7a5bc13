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
from threading import Condition, Thread

from msgspec import structs

from deepinfer_core import errors
from deepinfer_core.channel.restarts import Restarts
from deepinfer_core.config.settings import TelemetrySettings
from deepinfer_core.errors import DeepInferError, EngineError
from deepinfer_core.interfaces.kv_store import BlockGroup
from deepinfer_core.plugin.resolved import Resolved
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
    OpenFailed,
    Over,
    Return,
    Standing,
    Stop,
    Written,
)
from deepinfer_core.stores.fetcher.options import TrafficOptions
from deepinfer_core.stores.fetcher.process import FetcherProcess
from deepinfer_core.stores.fetcher.segment import Segment, new_descriptor
from deepinfer_core.stores.fetcher.slot_books import SlotBooks
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
from deepinfer_core.telemetry.logs import get_logger

__all__ = ["FetcherTraffic"]

_STOP_S = 2.0
"""How long a fetcher has to write what was handed over before it is told to end."""

_END_S = 8.0
"""And to close its stores behind that; then it is ended by force."""


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
        self._restarts = restarts or Restarts()
        self._changed = Condition()
        self._news: deque[News] = deque()
        self._tickets = Tickets()
        self._fetcher: FetcherProcess | None = None
        self._is_open = self._was_open = self._is_closing = False
        self._failure: DeepInferError | None = None
        self._problem, self._standing = "the store is being opened", ""
        self._restarted = 0
        self._supervisor = Thread(target=self._supervise, name="deepinfer-fetcher", daemon=True)
        self._supervisor.start()
        self._await_opening(options.start_s)

    @property
    def groups(self) -> Mapping[str, BlockGroup]:
        """What it carries."""
        return self._groups

    @property
    def process_id(self) -> int | None:
        """Of the fetcher; None while there is none."""
        fetcher = self._fetcher
        return None if fetcher is None else fetcher.process_id

    def want(self, wanted: Wanted) -> int:
        """Ask for a prefix; see ``BlockTraffic``."""
        now_s = time.monotonic()
        with self._changed:
            seek = self._tickets.open(wanted, now_s)
            if self._fetcher is None or not self._is_open:
                self._end(seek.ticket, "unavailable")
            else:
                self._fetcher.send(seek)
        return seek.ticket

    def cancel(self, ticket: int) -> None:
        """Give up a prefix; see ``BlockTraffic``."""
        with self._changed:
            if self._tickets.close(ticket, "cancelled", time.monotonic()):
                self._send(GiveUp(ticket))
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
        with self._changed:
            slots = self._books.lend(group, wanted if self._is_open else 0)
            self._tickets.tally.no_slots += wanted - len(slots)
        return slots

    def hand_over(self, finished: Sequence[Finished]) -> None:
        """Let blocks be stored; see ``BlockTraffic``."""
        with self._changed:
            by_group: dict[str, list[KeepItem]] = {}
            for one in finished:
                self._books.hand_over(one.slot)
                by_group.setdefault(one.slot.group, []).append(
                    KeepItem(one.slot.number, one.key, one.namespace, one.depth, one.retention)
                )
            if self._fetcher is None:
                self._tickets.tally.written["unavailable"] += self._books.lost()
            for group, items in by_group.items():
                self._send(Keep(group, items))

    def counts(self) -> TrafficCounts:
        """What has happened so far."""
        with self._changed:
            return replace(
                self._tickets.tally.counts(),
                restarts=self._restarted,
                problem=self._problem or self._standing,
            )

    def close(self) -> None:
        """End the fetcher; see ``BlockTraffic``."""
        with self._changed:
            is_first, self._is_closing = not self._is_closing, True
            self._is_open, self._problem = False, "it was closed"
            self._send(Stop(time.monotonic() + _STOP_S))
            self._changed.notify_all()
        self._supervisor.join(_STOP_S + _END_S)
        if (fetcher := self._fetcher) is not None:
            fetcher.kill()
            self._supervisor.join()
        if is_first:
            os.close(self._memory)

    def _await_opening(self, seconds: float) -> None:
        with self._changed:
            is_known = self._changed.wait_for(
                lambda: self._is_open or self._failure is not None, seconds
            )
            failure = self._failure
        if not is_known or failure is not None:
            self.close()
            raise failure or EngineError(f"the store did not open within {seconds:g} s")

    def _supervise(self) -> None:
        while True:
            ready_s, why = self._run()
            if self._is_closing:
                return
            if not self._was_open:
                with self._changed:
                    self._failure = self._failure or EngineError(f"no store was opened: {why}")
                    self._changed.notify_all()
                return
            wait_s = self._restarts.wait_s(ready_s)
            get_logger(__name__).error("fetcher.died", reason=why, restart_in_s=wait_s)
            with self._changed:
                if wait_s is None:
                    self._problem = f"the fetcher died too often: {why}"
                    return
                if self._changed.wait_for(lambda: self._is_closing, wait_s):
                    return
                self._restarted += 1

    def _run(self) -> tuple[float, str]:
        """Start a fetcher and listen until it ends; how long it was ready, and why it ended."""
        opened_s = 0.0
        try:
            fetcher = FetcherProcess(self._memory)
        except OSError as error:
            return 0.0, f"it cannot be started: {error}"
        with self._changed:
            self._fetcher, self._failure = fetcher, None
            fetcher.send(structs.replace(self._begin, held=self._books.held()))
            if self._is_closing:
                fetcher.send(Stop(0.0))
        for message in fetcher.messages():
            with self._changed:
                if isinstance(message, Opened):
                    opened_s = time.monotonic()
                self._heard(message)
                self._changed.notify_all()
        with self._changed:
            self._is_open = False
        status = fetcher.kill()  # nothing is taken from it before it cannot write any more
        with self._changed:
            self._fetcher = None
            why = str(self._failure) if self._failure else f"exit status {status}"
            if not self._is_closing:
                self._problem = f"the fetcher died: {why}"
            self._tickets.tally.written["lost"] += self._books.lost()
            for ticket in self._tickets.all():
                self._end(ticket, "lost")
            self._changed.notify_all()
        return (time.monotonic() - opened_s if opened_s else 0.0), why

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
        elif isinstance(message, Opened):
            self._is_open, self._was_open = not self._is_closing, True
            self._problem, self._standing = "", ""
        else:
            self._failure = _error_of(message)

    def _came(self, message: Came) -> None:
        slots = tuple(self._books.came(message.group, number) for number, _ in message.slots)
        if self._tickets.is_open(message.ticket):
            self._news.append(Arrived(message.ticket, message.first, slots, message.is_state))
            self._tickets.tally.came(len(slots), self._groups[message.group].block_bytes)
        else:
            self._return(slots)

    def _end(self, ticket: int, reason: str) -> None:
        if self._tickets.close(ticket, reason, time.monotonic()):
            self._news.append(Ended(ticket, reason))

    def _end_overdue(self) -> None:
        for ticket in self._tickets.overdue(time.monotonic()):
            self._send(GiveUp(ticket))
            self._end(ticket, "timeout")

    def _return(self, slots: Sequence[Slot]) -> None:
        for group, numbers in self._books.give_back(slots).items():
            self._send(Return(group, numbers))

    def _send(self, message: GiveUp | Keep | Return | Stop) -> None:
        if self._fetcher is not None:
            self._fetcher.send(message)

    def _slot(self, group: str, number: int) -> Slot:
        return Slot(
            group,
            number,
            self._segment.generation(group, number),
            self._segment.view(group, number),
        )


def _error_of(message: OpenFailed) -> DeepInferError:
    kind = getattr(errors, message.error, None) if message.error in errors.__all__ else None
    return (kind or EngineError)(message.message, hint=message.hint)
