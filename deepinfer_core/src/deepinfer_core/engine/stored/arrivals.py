"""How does what has come from a store get into pages, and become cached blocks?

It is copied behind the steps that were launched before, and published when the copy is known to
have succeeded. Pages that nobody wants any more are free at once: whatever is written to them next
is launched behind the copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from deepinfer_core.cache.prefix import PrefixCache
from deepinfer_core.engine.page_memory import PageMemory
from deepinfer_core.engine.stored.counts import StoreCounts
from deepinfer_core.engine.stored.fetch import Fetch
from deepinfer_core.interfaces.device import Event
from deepinfer_core.stores.traffic import Arrived, BlockTraffic, Slot

__all__ = ["Arrivals"]

_PIECES_AT_ONCE = 16
"""Pieces that are copied in one step; a piece is a batch of blocks, or a state."""


@dataclass(slots=True, eq=False)
class _Copy:
    """A piece on its way into pages; none if nobody wants it any more.

    Attributes:
        first: place among the wanted keys of its first block; of a state, of the block before it.
    """

    fetch: Fetch
    first: int
    pages: tuple[int, ...]
    slots: tuple[Slot, ...]
    is_state: bool
    event: Event


class Arrivals:
    """All pieces of one engine that have come.

    Args:
        traffic: gets its slots back.
        memory: the engine's pages.
        counts: what is counted.
        came: told the key of each block that came.
        stop: called where a fetch can go no further, with the reason; it discards what is left.
    """

    def __init__(
        self,
        traffic: BlockTraffic,
        memory: PageMemory,
        counts: StoreCounts,
        came: Callable[[bytes], None],
        stop: Callable[[Fetch, str], None],
    ) -> None:
        self._traffic = traffic
        self._memory = memory
        self._counts = counts
        self._came = came
        self._stop = stop
        self._pieces: deque[tuple[Fetch, Arrived]] = deque()
        self._copies: deque[_Copy] = deque()

    def start(self, cache: PrefixCache) -> None:
        """Begin over an empty cache, whatever was under way; the device is idle."""
        slots = [slot for _, piece in self._pieces for slot in piece.slots]
        self._traffic.give_back([*slots, *(slot for copy in self._copies for slot in copy.slots)])
        self._pieces, self._copies = deque(), deque()
        self._cache = cache

    @property
    def is_busy(self) -> bool:
        """Whether there are slots to be given back."""
        return bool(self._pieces or self._copies)

    def take(self, fetch: Fetch, piece: Arrived) -> None:
        """A piece of a fetch has come."""
        fetch.arriving += 1
        if piece.is_state:
            fetch.state = piece.first + 1
            fetch.remote_state = piece.first if piece.remote else None
        else:
            fetch.came = piece.first + len(piece.slots)
            fetch.remote |= piece.remote
        self._pieces.append((fetch, piece))

    def tend(self, owed_blocks: int) -> None:
        """Publish what is in its pages, and bring more into pages.

        Args:
            owed_blocks: free blocks that are left alone.
        """
        self._settle()
        for _ in range(min(_PIECES_AT_ONCE, len(self._pieces))):
            if self._pieces:
                self._bring_in(*self._pieces.popleft(), owed_blocks)
        self._settle()

    def discard(self, fetch: Fetch) -> None:
        """Nobody wants what is not published yet."""
        fetch.arriving = 0
        for one, piece in self._pieces:
            if one is fetch:
                self._traffic.give_back(piece.slots)
        self._pieces = deque([pair for pair in self._pieces if pair[0] is not fetch])
        for copy in self._copies:
            if copy.fetch is fetch:
                self._give_back_pages(copy)

    def held_blocks(self) -> Iterator[tuple[int, ...]]:
        """Blocks that are copied to."""
        yield from (copy.pages for copy in self._copies if not copy.is_state)

    def reserved_slots(self) -> set[int]:
        """State slots that are copied to."""
        return {page for copy in self._copies if copy.is_state for page in copy.pages}

    def _bring_in(self, fetch: Fetch, piece: Arrived, owed_blocks: int) -> None:
        pages = self._pages(piece, owed_blocks)
        if not pages:
            fetch.arriving -= 1
            self._traffic.give_back(piece.slots)
            if not piece.is_state:
                self._stop(fetch, "no_room")
            return
        views = [slot.view for slot in piece.slots]
        event = self._memory.write(pages, views, is_state=piece.is_state)
        copy = _Copy(fetch, piece.first, pages, piece.slots, piece.is_state, event)
        self._copies.append(copy)

    def _pages(self, piece: Arrived, owed_blocks: int) -> tuple[int, ...]:
        """Pages for a piece; none if there is no room for it."""
        if piece.is_state:
            slot = self._cache.reserve_snapshot()
            return () if slot is None else (slot,)
        if self._cache.free_blocks - len(piece.slots) < owed_blocks:
            return ()
        return self._cache.take(len(piece.slots))

    def _settle(self) -> None:
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
        for place, page in enumerate(copy.pages, copy.first):
            key = fetch.keys[place]
            if not self._cache.match((key,)).block_ids:
                fetch.stored.append(fetch.first + place)
            self._cache.publish(key, page)
            self._came(key)
        fetch.block_ids += copy.pages

    def _publish_state(self, copy: _Copy) -> None:
        key, [slot] = copy.fetch.keys[copy.first], copy.pages
        if not self._cache.match((key,)).block_ids:
            self._cache.drop_snapshot(slot)
            return
        self._counts.states += 1
        self._cache.publish_snapshot(key, slot)

    def _give_back_pages(self, copy: _Copy) -> None:
        pages, copy.pages = copy.pages, ()
        if not copy.is_state:
            self._cache.release(pages)
        for slot in pages if copy.is_state else ():
            self._cache.drop_snapshot(slot)


def _has_failed(event: Event) -> bool:
    try:
        event.wait()
    except Exception:  # noqa: BLE001 - what a component raises: the store is not used for it
        return True
    return False
