"""How do blocks come from a store into the pages of an engine?

A sequence that waits asks for the blocks behind those that are cached, and is not ready until they
have come, or until waiting any longer would take more time than computing. It holds what has come
until it is admitted, so that nothing of it makes room for others in between; under pressure it lets
go, and what is still cached then is found all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from deepinfer_core.cache.prefix import PrefixCache
from deepinfer_core.engine.page_memory import PageMemory
from deepinfer_core.engine.prefix_reuse import ReusePolicy
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.engine.stored.arrivals import Arrivals
from deepinfer_core.engine.stored.asking import is_on_its_own, question_of
from deepinfer_core.engine.stored.counts import StoreCounts
from deepinfer_core.engine.stored.fetch import Fetch, Taken
from deepinfer_core.engine.stored.limits import StoreLimits
from deepinfer_core.engine.stored.pace import Pace
from deepinfer_core.stores.traffic import Arrived, BlockTraffic, Ended, Wanted

__all__ = ["Fetching"]

_COPY_WAIT_S = 0.0005
"""How long an idle engine looks away while a copy is under way."""


class Fetching:
    """All fetches of one engine.

    Args:
        traffic: the way to the store.
        groups: names of the groups of blocks and of states; None: states are not stored.
        memory: the engine's pages.
        policy: what is reused.
        limits: how long it may take.
        pace: how long computing takes.
        counts: what is counted.
        clock_s: monotonic clock.
        reach: says how many leading keys are likely to be stored.
        came: told the key of each block that came.
        ended: told each fetch that the store ended, and why.
    """

    def __init__(
        self,
        traffic: BlockTraffic,
        groups: tuple[str, str | None],
        memory: PageMemory,
        policy: ReusePolicy,
        limits: StoreLimits,
        pace: Pace,
        counts: StoreCounts,
        clock_s: Callable[[], float],
        reach: Callable[[tuple[bytes, ...]], int],
        came: Callable[[bytes], None],
        ended: Callable[[Fetch, str], None],
    ) -> None:
        self._traffic = traffic
        self._group, self._state_group = groups
        self._policy = policy
        self._limits = limits
        self._pace = pace
        self._counts = counts
        self._clock_s = clock_s
        self._reach, self._ended = reach, ended
        self._living: dict[Fetch, None] = {}
        self._by_ticket: dict[int, Fetch] = {}
        self._arrivals = Arrivals(traffic, memory, counts, came, self._stop)

    def start(self, cache: PrefixCache) -> None:
        """Begin over an empty cache, whatever was under way; the device is idle."""
        for ticket in self._by_ticket:
            self._traffic.cancel(ticket)
        self._living, self._by_ticket = {}, {}
        self._arrivals.start(cache)
        self._cache = cache

    def tend(
        self,
        waiting: Iterable[Sequence],
        reserve_blocks: int,
        owed_blocks: Callable[[], int],
    ) -> None:
        """Hear what has come, bring it into pages, and ask for more.

        Args:
            waiting: sequences in order of rank.
            reserve_blocks: free blocks beside those that are asked for.
            owed_blocks: how many free blocks what has come leaves alone.
        """
        self._hear()
        self._arrivals.tend(owed_blocks() if self._arrivals.is_busy else 0)
        self._give_up_late_ones()
        for sequence in waiting:
            if len(self._by_ticket) >= self._limits.most_fetches:
                break
            if sequence.fetch is None and is_on_its_own(sequence):
                self._ask(sequence, reserve_blocks)

    def wait(self, seconds: float) -> bool:
        """Whether some sequence waits; if so, wait a little for news."""
        deadlines_s = [fetch.deadline_s for fetch in self._living if fetch.is_open]
        if not deadlines_s:
            return False
        if self._arrivals.is_busy:
            seconds = _COPY_WAIT_S
        left_s = min(deadlines_s) - self._clock_s()
        self._traffic.wait(max(0.0, min(seconds, left_s)))
        return True

    @property
    def is_busy(self) -> bool:
        """Whether slots are to be given back though no sequence waits."""
        return self._arrivals.is_busy

    def admitted(self, sequence: Sequence, blocks: int) -> Taken:
        """A sequence has taken over so many cached blocks; what of them it has fetched."""
        fetch, sequence.fetch = sequence.fetch, None
        if fetch is None:
            self._counts.unasked["busy"] += is_on_its_own(sequence)
            return Taken()
        self._drop(fetch)
        self._count("no_room" if blocks < fetch.let_go else fetch.reason)
        return fetch.taken(blocks)

    def leave(self, sequence: Sequence) -> None:
        """A sequence is gone."""
        fetch, sequence.fetch = sequence.fetch, None
        if fetch is not None:
            self._drop(fetch)
            self._count(fetch.reason)

    def make_room(self) -> None:
        """Let go of all blocks; what they hold stays cached as long as there is room."""
        for fetch in list(self._living):
            fetch.let_go = len(fetch.block_ids)
            self._drop(fetch, "no_room")

    def held_blocks(self) -> Iterator[tuple[int, ...]]:
        """Blocks that fetches hold."""
        yield from (fetch.block_ids for fetch in self._living)
        yield from self._arrivals.held_blocks()

    def reserved_slots(self) -> set[int]:
        """State slots that states are copied to."""
        return self._arrivals.reserved_slots()

    def _hear(self) -> None:
        for news in self._traffic.poll():
            fetch = self._by_ticket.get(news.ticket)
            if isinstance(news, Ended):
                if fetch is not None:
                    self._end(fetch, news.reason)
                    self._ended(fetch, news.reason)
            elif isinstance(news, Arrived):
                if fetch is None:
                    self._traffic.give_back(news.slots)
                else:
                    self._arrivals.take(fetch, news)

    def _give_up_late_ones(self) -> None:
        now_s = self._clock_s()
        for fetch in [one for one in self._by_ticket.values() if one.deadline_s <= now_s]:
            self._cancel(fetch, "abandoned")

    def _ask(self, sequence: Sequence, reserve_blocks: int) -> None:
        """Ask for what a sequence lacks; nothing happens if there is no room for it now."""
        cache, has_states = self._cache, self._state_group is not None
        question = question_of(sequence, cache, self._policy, has_states=has_states)
        keys, first, cached, wants_state, rows = question
        if not keys:
            self._counts.unasked["in_memory" if cached else "too_short"] += 1
            sequence.fetch = Fetch(keys=(), first=first, deadline_s=0.0)
            return
        coming = sum(len(one.keys) - len(one.stored) for one in self._by_ticket.values())
        needed = len(keys) + cache.idle_among(cached) + coming
        if cache.free_blocks - needed < reserve_blocks:
            return
        fetch_s, computing_s = self._limits.fetch_timeout_s, self._pace.seconds(rows)
        if computing_s is not None:
            fetch_s = min(fetch_s, self._limits.patience * computing_s)
        fetch = Fetch(keys=keys, first=first, deadline_s=self._clock_s() + fetch_s)
        cache.share(cached)
        fetch.block_ids = cached
        fetch.ticket = self._traffic.want(
            Wanted(
                keys=keys,
                retention=sequence.request.options.retention,
                group=self._group,
                state_group=self._state_group if wants_state else None,
                expected=self._reach(keys),
                match_s=min(self._limits.match_timeout_s, fetch_s),
                fetch_s=fetch_s,
            )
        )
        self._by_ticket[fetch.ticket] = sequence.fetch = fetch
        self._living[fetch] = None

    def _end(self, fetch: Fetch, reason: str) -> None:
        assert fetch.ticket is not None
        del self._by_ticket[fetch.ticket]
        fetch.ticket, fetch.reason = None, reason

    def _cancel(self, fetch: Fetch, reason: str) -> None:
        if fetch.ticket is not None:
            self._traffic.cancel(fetch.ticket)
            self._end(fetch, reason)

    def _stop(self, fetch: Fetch, reason: str) -> None:
        """Take nothing more of what still comes; what came stays."""
        self._cancel(fetch, reason)
        fetch.reason = reason
        self._arrivals.discard(fetch)

    def _count(self, reason: str) -> None:
        """A sequence waits no longer; whatever a fetch got, how it ended is known by now."""
        if reason:
            self._counts.fetches[reason] += 1

    def _drop(self, fetch: Fetch, reason: str = "left") -> None:
        """Let go of everything."""
        if fetch.is_open:
            self._stop(fetch, reason)
        self._cache.release(fetch.block_ids)
        fetch.block_ids = ()
        self._living.pop(fetch, None)
