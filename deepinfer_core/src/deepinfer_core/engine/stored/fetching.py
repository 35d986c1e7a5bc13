"""How do blocks come from a store into the pages of an engine?

A sequence that waits asks for the blocks behind those that are cached, and is not ready until they
have come, or until waiting any longer would take more time than computing. What comes is copied
into pages behind the steps that were launched before, and published when the copy is known to have
succeeded. The sequence holds all of it until it is admitted, so that nothing makes room for others
in between; under pressure it lets go, and what is still cached then is found all the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from deepinfer_core.cache.prefix import PrefixCache
from deepinfer_core.engine.page_memory import PageMemory
from deepinfer_core.engine.prefix_reuse import ReusePolicy
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.engine.stored.asking import is_on_its_own, question_of
from deepinfer_core.engine.stored.counts import StoreCounts
from deepinfer_core.engine.stored.fetch import Fetch
from deepinfer_core.engine.stored.limits import StoreLimits
from deepinfer_core.engine.stored.pace import Pace
from deepinfer_core.interfaces.device import Event
from deepinfer_core.stores.traffic import Arrived, BlockTraffic, Ended, Slot, Wanted

__all__ = ["Fetching"]

_PIECES_AT_ONCE = 16
"""Pieces that have come and are copied in one step; a piece is a batch of blocks, or a state."""

_COPY_WAIT_S = 0.0005
"""How long an idle engine looks away while a copy is under way."""


@dataclass(slots=True, eq=False)
class _Copy:
    """A piece on its way into pages; none if nobody wants it any more.

    Attributes:
        first: number in the chain of its first block; of a state, of the block in front of it.
    """

    fetch: Fetch
    first: int
    pages: tuple[int, ...]
    slots: tuple[Slot, ...]
    is_state: bool
    event: Event


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
        came: told the key of each block that came.
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
        came: Callable[[bytes], None],
    ) -> None:
        self._traffic = traffic
        self._group, self._state_group = groups
        self._memory = memory
        self._policy = policy
        self._limits = limits
        self._pace = pace
        self._counts = counts
        self._clock_s = clock_s
        self._came = came
        self._living: dict[Fetch, None] = {}
        self._by_ticket: dict[int, Fetch] = {}
        self._pieces: deque[tuple[Fetch, Arrived]] = deque()
        self._copies: deque[_Copy] = deque()

    def start(self, cache: PrefixCache) -> None:
        """Begin over an empty cache, whatever was under way; the device is idle."""
        for ticket in self._by_ticket:
            self._traffic.cancel(ticket)
        slots = [slot for _, piece in self._pieces for slot in piece.slots]
        self._traffic.give_back([*slots, *(slot for copy in self._copies for slot in copy.slots)])
        self._living, self._by_ticket = {}, {}
        self._pieces, self._copies = deque(), deque()
        self._cache = cache

    def tend(self, waiting: Iterable[Sequence], reserve_blocks: int) -> None:
        """Hear what has come, bring it into pages, and ask for more.

        Args:
            waiting: sequences in order of rank.
            reserve_blocks: free blocks that are left alone.
        """
        self._hear()
        self._settle()
        self._bring_in(reserve_blocks)
        self._settle()
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
        if self._copies:
            seconds = _COPY_WAIT_S
        elif self._pieces:
            return True
        left_s = min(deadlines_s) - self._clock_s()
        self._traffic.wait(max(0.0, min(seconds, left_s)))
        return True

    @property
    def is_busy(self) -> bool:
        """Whether slots are to be given back though no sequence waits."""
        return bool(self._copies or self._pieces)

    def admitted(self, sequence: Sequence, blocks: int) -> int:
        """A sequence has taken over so many cached blocks; how many of them it has fetched."""
        fetch, sequence.fetch = sequence.fetch, None
        if fetch is None:
            self._counts.unasked["busy"] += is_on_its_own(sequence)
            return 0
        self._drop(fetch)
        return sum(number < blocks for number in fetch.stored)

    def leave(self, sequence: Sequence) -> None:
        """A sequence is gone."""
        fetch, sequence.fetch = sequence.fetch, None
        if fetch is not None:
            self._drop(fetch)

    def make_room(self) -> None:
        """Let go of all blocks; what they hold stays cached as long as there is room."""
        for fetch in list(self._living):
            self._drop(fetch, "no_room")

    def held_blocks(self) -> Iterator[tuple[int, ...]]:
        """Blocks that fetches hold."""
        yield from (fetch.block_ids for fetch in self._living)
        yield from (copy.pages for copy in self._copies if not copy.is_state)

    def reserved_slots(self) -> set[int]:
        """State slots that states are copied to."""
        return {page for copy in self._copies if copy.is_state for page in copy.pages}

    def _hear(self) -> None:
        for news in self._traffic.poll():
            fetch = self._by_ticket.get(news.ticket)
            if isinstance(news, Ended):
                if fetch is not None:
                    self._end(fetch, news.reason)
            elif isinstance(news, Arrived):
                if fetch is None:
                    self._traffic.give_back(news.slots)
                else:
                    fetch.arriving += 1
                    self._pieces.append((fetch, news))

    def _bring_in(self, reserve_blocks: int) -> None:
        for _ in range(min(_PIECES_AT_ONCE, len(self._pieces))):
            fetch, piece = self._pieces.popleft()
            pages = self._pages(piece, reserve_blocks)
            if not pages:
                fetch.arriving -= 1
                self._traffic.give_back(piece.slots)
                if not piece.is_state:
                    self._stop(fetch, "no_room")
                continue
            views = [slot.view for slot in piece.slots]
            event = self._memory.write(pages, views, is_state=piece.is_state)
            first = fetch.first + piece.first
            self._copies.append(_Copy(fetch, first, pages, piece.slots, piece.is_state, event))

    def _pages(self, piece: Arrived, reserve_blocks: int) -> tuple[int, ...]:
        """Pages for a piece; none if there is no room for it."""
        if piece.is_state:
            slot = self._cache.reserve_snapshot()
            return () if slot is None else (slot,)
        if self._cache.free_blocks - len(piece.slots) < reserve_blocks:
            return ()
        return self._cache.take(len(piece.slots))

    def _settle(self) -> None:
        """Publish what has arrived in its pages."""
        while self._copies and self._copies[0].event.is_done:
            copy = self._copies.popleft()
            self._traffic.give_back(copy.slots)
            has_failed = _has_failed(copy.event)
            if not copy.pages:
                continue
            copy.fetch.arriving -= 1
            if has_failed:
                self._give_back_pages(copy)
                self._stop(copy.fetch, "failed")
            elif copy.is_state:
                self._publish_state(copy)
            else:
                self._publish(copy)

    def _publish(self, copy: _Copy) -> None:
        fetch = copy.fetch
        for number, page in enumerate(copy.pages, copy.first):
            key = fetch.keys[number - fetch.first]
            if not self._cache.match((key,)).block_ids:
                fetch.stored.append(number)
            self._cache.publish(key, page)
            self._came(key)
        fetch.block_ids += copy.pages

    def _publish_state(self, copy: _Copy) -> None:
        key, [slot] = copy.fetch.keys[copy.first - copy.fetch.first], copy.pages
        if not self._cache.match((key,)).block_ids:
            self._cache.drop_snapshot(slot)
            return
        self._counts.states += 1
        self._cache.publish_snapshot(key, slot)

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
        assert sequence.chain is not None
        fetch.ticket = self._traffic.want(
            Wanted(
                keys=keys,
                depth=first,
                namespace=sequence.chain.root,
                retention=sequence.request.options.retention,
                group=self._group,
                state_group=self._state_group if wants_state else None,
                match_s=min(self._limits.match_timeout_s, fetch_s),
                fetch_s=fetch_s,
            )
        )
        self._by_ticket[fetch.ticket] = sequence.fetch = fetch
        self._living[fetch] = None

    def _end(self, fetch: Fetch, reason: str) -> None:
        assert fetch.ticket is not None
        del self._by_ticket[fetch.ticket]
        fetch.ticket = None
        self._counts.fetches[reason] += 1

    def _cancel(self, fetch: Fetch, reason: str) -> None:
        if fetch.ticket is not None:
            self._traffic.cancel(fetch.ticket)
            self._end(fetch, reason)

    def _stop(self, fetch: Fetch, reason: str) -> None:
        """Take nothing more of what still comes; what came stays."""
        self._cancel(fetch, reason)
        fetch.arriving = 0
        for one, piece in self._pieces:
            if one is fetch:
                self._traffic.give_back(piece.slots)
        self._pieces = deque([pair for pair in self._pieces if pair[0] is not fetch])
        for copy in self._copies:
            if copy.fetch is fetch:
                self._give_back_pages(copy)

    def _give_back_pages(self, copy: _Copy) -> None:
        # Whatever is written to these pages next is launched behind the copy.
        pages, copy.pages = copy.pages, ()
        if not copy.is_state:
            self._cache.release(pages)
        for slot in pages if copy.is_state else ():
            self._cache.drop_snapshot(slot)

    def _drop(self, fetch: Fetch, reason: str = "left") -> None:
        """Let go of everything."""
        self._stop(fetch, reason)
        self._cache.release(fetch.block_ids)
        fetch.block_ids = ()
        self._living.pop(fetch, None)


def _has_failed(event: Event) -> bool:
    try:
        event.wait()
    except Exception:  # noqa: BLE001 - what a component raises: the store is not used for it
        return True
    return False
