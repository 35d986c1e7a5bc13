"""Which threads does a fetcher have, and what do they do?

For each store a few that read, one that writes and one that sweeps and notes uses, and for all one
that keeps time. They meet at the desk and the queues, under one lock; no store is called under it.
"""

from __future__ import annotations

import faulthandler
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Condition, Thread

from deepinfer_core.interfaces.kv_store import BlockGroup, StoreReport
from deepinfer_core.stores.fetcher.chores import Chores
from deepinfer_core.stores.fetcher.desk import Desk, FindState, LoadBlocks, MatchKeys, Work
from deepinfer_core.stores.fetcher.endpoint import Endpoint
from deepinfer_core.stores.fetcher.gallop import match
from deepinfer_core.stores.fetcher.keeper import Keeper
from deepinfer_core.stores.fetcher.loads import Loads
from deepinfer_core.stores.fetcher.messages import (
    FromFetcher,
    GiveUp,
    Keep,
    Reported,
    Return,
    Seek,
    Standing,
    Stop,
    ToFetcher,
)
from deepinfer_core.stores.fetcher.options import TrafficOptions
from deepinfer_core.stores.fetcher.prefix import Prefix
from deepinfer_core.stores.fetcher.segment import Segment
from deepinfer_core.stores.fetcher.write_queue import WriteQueue

__all__ = ["Fetcher"]

_TICK_S = 0.25
"""How often calls that hang are looked for."""

_STUCK_S = 60.0
"""A process in which no thread of Python runs for so long is ended: foreign code keeps them all."""

_ARM_EVERY_S = 5.0

_STATES_AT_ONCE = 64
"""Keys in a call that looks for a state, from the end."""


class Fetcher:
    """Does what an engine says.

    Args:
        segment: shared with the engine.
        blocks: the store of blocks.
        states: the one of states; may be the same.
        groups: of blocks, by name.
        held: slots that are in use from the start; see ``Begin``.
        options: sizes and times.
        tell: sends a message to the engine; never waits.
        failed: told of a defect in a thread, whose work nobody does from then on.
    """

    def __init__(
        self,
        segment: Segment,
        blocks: Endpoint,
        states: Endpoint,
        groups: Mapping[str, BlockGroup],
        held: Mapping[str, Mapping[int, int]],
        options: TrafficOptions,
        tell: Callable[[FromFetcher], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._segment, self._groups, self._options, self._tell = segment, groups, options, tell
        self._blocks, self._states, self._failed = blocks, states, failed
        self._changed = Condition()
        loads = {name: self._loads_of(name, held.get(name, {})) for name in groups}
        self._desk = Desk(loads, blocks.store.capabilities.batch_blocks, tell, self._used)
        self._queues = {end: self._queue(end) for end in dict.fromkeys((blocks, states))}
        self._chores = {
            end: Chores(end, options.sweep_every_s, partial(self._report, end))
            for end in dict.fromkeys((blocks, states))
        }
        self._keepers = {
            end: Keeper(end, self._chores[end].used, groups, segment) for end in self._queues
        }
        self._problem = ""

    def start(self) -> None:
        """Begin to work."""
        next_work = self._desk.blocks_work
        if self._states is self._blocks:
            next_work = self._any_work
        else:
            self._spawn("deepinfer-state", partial(self._read, self._desk.state_work))
        for _ in range(self._options.read_threads):
            self._spawn("deepinfer-fetch", partial(self._read, next_work))
        for end, queue in self._queues.items():
            self._spawn("deepinfer-keep", partial(self._write, end, queue))
        for chores in self._chores.values():
            chores.start()
        self._spawn("deepinfer-clock", self._keep_time)

    def obey(self, message: ToFetcher) -> None:
        """Note what the engine says."""
        with self._changed:
            if isinstance(message, Seek):
                self._seek(message)
            elif isinstance(message, GiveUp):
                self._desk.give_up(message.ticket)
            elif isinstance(message, Return):
                self._desk.returned(message.group, message.numbers)
            elif isinstance(message, Keep):
                self._keep(message)
            self._changed.notify_all()

    def finish(self, stop: Stop) -> None:
        """Wait until all is written that was handed over, or until a point in time."""
        with self._changed:
            self._changed.wait_for(
                lambda: not any(map(len, self._queues.values())),
                max(0.0, stop.by_s - time.monotonic()),
            )

    def _loads_of(self, group: str, held: Mapping[int, int]) -> Loads:
        slots = self._segment.layout.groups[group].arriving
        return Loads(slots, held, lambda number: self._segment.renew(group, number))

    def _queue(self, end: Endpoint) -> WriteQueue:
        return WriteQueue(
            age_s=self._options.write_age_s,
            batch_blocks=end.store.capabilities.batch_blocks,
            tell=self._tell,
        )

    def _report(self, end: Endpoint, report: StoreReport) -> None:
        self._tell(Reported("blocks" if end is self._blocks else "state", report))

    def _used(self, group: str, keys: list[bytes], retention: str) -> None:
        self._chores[self._blocks].used(group, keys, retention)

    def _endpoint(self, group: str) -> Endpoint:
        return self._states if self._groups[group].reuse == "last" else self._blocks

    def _spawn(self, name: str, work: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - nobody would do its work
                self._failed(error)

        Thread(target=guarded, name=name, daemon=True).start()

    def _seek(self, seek: Seek) -> None:
        is_for_blocks = len(seek.keys) > 32 * seek.has
        if is_for_blocks and not self._blocks.would_let("find", "load"):
            self._desk.refuse(seek, "unavailable")
        else:
            self._desk.seek(seek)

    def _keep(self, message: Keep) -> None:
        queue = self._queues[self._endpoint(message.group)]
        queue.put(message.group, message.items, time.monotonic())

    def _read(self, next_work: Callable[[], Work | None]) -> None:
        while True:
            with self._changed:
                while (work := next_work()) is None:
                    self._changed.wait()
            if isinstance(work, MatchKeys):
                self._match(work.prefix)
            elif isinstance(work, LoadBlocks):
                self._load(work)
            else:
                self._find_state(work)

    def _any_work(self) -> Work | None:
        return self._desk.blocks_work() or self._desk.state_work()

    def _match(self, prefix: Prefix) -> None:
        seek = prefix.seek
        found = match(
            lambda keys: self._blocks.find(seek.group, keys, seek.match_by_s),
            prefix.keys[seek.has :],
            expected=seek.expected - seek.has,
        )
        with self._changed:
            self._desk.matched(prefix, found)
            self._changed.notify_all()

    def _load(self, work: LoadBlocks) -> None:
        seek = work.prefix.seek
        views = [self._segment.view(seek.group, load.slot) for load in work.loads]
        keys = [load.key for load in work.loads]
        outcomes = self._blocks.load(seek.group, keys, views, seek.fetch_by_s)
        for load, one in zip(work.loads, outcomes, strict=True):
            load.is_remote = one.is_remote
        with self._changed:
            self._desk.loaded(work, [one.status for one in outcomes])
            self._changed.notify_all()

    def _find_state(self, work: FindState) -> None:
        prefix = work.prefix
        for place in self._state_places(prefix):
            with self._changed:
                load = self._desk.begin_state(prefix, place)
            if load is None:
                break
            group = prefix.seek.state_group or ""
            views = [self._segment.view(group, load.slot)]
            (outcome,) = self._states.load(group, [load.key], views, prefix.seek.fetch_by_s)
            load.is_remote = outcome.is_remote
            with self._changed:
                is_settled = self._desk.state_loaded(prefix, load, place, outcome.status)
                self._changed.notify_all()
            if is_settled:
                return
        with self._changed:
            self._desk.no_state(prefix)

    def _state_places(self, prefix: Prefix) -> Sequence[int]:
        """Places of blocks with a state at their end, from the last on; those of one call."""
        end = prefix.told
        while end > 0:
            begin = max(0, end - _STATES_AT_ONCE)
            keys = prefix.keys[begin:end]
            group = prefix.seek.state_group or ""
            outcomes = self._states.find(group, keys, prefix.seek.fetch_by_s)
            found = [begin + at for at, one in enumerate(outcomes) if one.status == "hit"]
            if found:
                return found[::-1]
            if any(one.status != "miss" for one in outcomes):
                break
            end = begin
        return []

    def _write(self, end: Endpoint, queue: WriteQueue) -> None:
        while True:
            with self._changed:
                while (batch := queue.take()) is None:
                    self._changed.wait()
            outcomes = self._keepers[end].store(batch)
            with self._changed:
                queue.done(batch, outcomes)
                self._changed.notify_all()

    def _keep_time(self) -> None:
        armed_s = -math.inf
        while True:
            now_s = time.monotonic()
            if now_s >= armed_s + _ARM_EVERY_S:
                armed_s = now_s
                faulthandler.dump_traceback_later(_STUCK_S, exit=True)
            for end in self._queues:
                end.watch()
            with self._changed:
                if self._desk.expire(now_s):
                    self._changed.notify_all()
                for queue in self._queues.values():
                    queue.expire(now_s)
                self._tell_standing()
                deadline_s = self._desk.next_deadline_s()
                wait_s = _TICK_S if deadline_s is None else min(_TICK_S, deadline_s - now_s)
                self._changed.wait(max(wait_s, 0.001))

    def _tell_standing(self) -> None:
        problem = self._blocks.problem()
        if problem != self._problem:
            self._problem = problem
            self._tell(Standing(problem))
