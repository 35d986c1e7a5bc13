"""How do finished blocks and states come from an engine to a store?

Whatever is published and is not known to be stored joins a backlog, in order of its chain. Each
step has some of it copied into empty slots, behind the steps that were launched before; when the
copy is known to have succeeded, the slots are handed over. Where the backlog is full, the newest
blocks have to wait in their sequence, and are dropped with it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from deepinfer_core.cache.prefix import PrefixCache
from deepinfer_core.engine.page_memory import PageMemory
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.engine.stored.counts import StoreCounts
from deepinfer_core.engine.stored.fetch import Fetch
from deepinfer_core.engine.stored.limits import StoreLimits
from deepinfer_core.engine.stored.stored_keys import StoredKeys
from deepinfer_core.interfaces.device import Event
from deepinfer_core.stores.traffic import BlockTraffic, Finished, Slot

__all__ = ["WriteBack"]

_MOST_STATES = 64
"""States that wait to be copied: the newest of so many sequences."""


_STATES_AT_ONCE = 4
"""States that are copied in one step."""

_LONGEST_WAIT_S = 10.0
"""A store that has taken nothing for so long is not going to soon."""

_SAYING = frozenset({"done", "miss", "corrupt", "version"})
"""Ends of fetches behind which the store has not got what did not come."""


class _Block(NamedTuple):
    """A block that waits to be copied, with one user for that."""

    sequence: Sequence
    block_id: int
    key: bytes
    depth: int
    since_s: float

    def finished(self, slot: Slot) -> Finished:
        chain, options = self.sequence.chain, self.sequence.request.options
        assert chain is not None
        parent = chain.keys[self.depth - 1] if self.depth else b""
        return Finished(slot, self.key, chain.root, self.depth, options.retention, parent)


class _State(NamedTuple):
    """A state that waits to be copied, and nothing to keep it from making room."""

    key: bytes
    namespace: bytes
    depth: int


class WriteBack:
    """All that an engine gives a store.

    Args:
        traffic: the way to the store.
        groups: names of the groups of blocks and of states; None: states are not stored.
        memory: the engine's pages.
        limits: how much may wait, and be copied in a step.
        counts: what is counted.
        clock_s: monotonic clock.
    """

    def __init__(
        self,
        traffic: BlockTraffic,
        groups: tuple[str, str | None],
        memory: PageMemory,
        limits: StoreLimits,
        counts: StoreCounts,
        clock_s: Callable[[], float],
    ) -> None:
        self._traffic = traffic
        self._group, self._state_group = groups
        self._memory = memory
        self._limits = limits
        self._counts = counts
        self._clock_s = clock_s
        self._known = StoredKeys(clock_s)
        self._known_states = StoredKeys(clock_s, limits.state_retention_s)
        self._backlog: deque[_Block] = deque()
        self._states: OrderedDict[int, _State] = OrderedDict()
        self._reads: deque[tuple[Event, list[Finished]]] = deque()

    def start(self, cache: PrefixCache) -> None:
        """Begin over an empty cache, whatever was under way; the device is idle."""
        for _, finished in self._reads:
            self._forget(finished)
        self._counts.written["dropped"] += len(self._backlog) + len(self._states)
        for block in self._backlog:
            self._known.discard(block.key)
        self._backlog, self._states, self._reads = deque(), OrderedDict(), deque()
        self._cache = cache
        self._block_tokens = self._traffic.groups[self._group].block_tokens

    @property
    def is_busy(self) -> bool:
        """Whether something waits to be copied, or to be handed over."""
        return bool(self._reads or self._backlog or self._states)

    def reach(self, keys: tuple[bytes, ...]) -> int:
        """How many leading keys are likely to be stored; see ``StoredKeys``."""
        return self._known.reach(keys)

    def came(self, key: bytes) -> None:
        """A block came from the store."""
        self._known.add(key)

    def ended(self, fetch: Fetch, reason: str) -> None:
        """The store ended a fetch: what it has lost is to be offered again."""
        if reason == "lost":
            self.forget_all()
        elif reason in _SAYING:
            waiting = self._waiting()
            for key in set(fetch.keys[fetch.came :]) - waiting:
                self._known.discard(key)
            for key in set(fetch.keys[fetch.state :]) - waiting:
                self._known_states.discard(key)

    def forget_all(self) -> None:
        """The store may have lost everything."""
        waiting = self._waiting()
        self._known.keep_only(waiting)
        self._known_states.keep_only(waiting)

    def offer(self, sequence: Sequence) -> None:
        """Let the published blocks of a sequence join the backlog, as far as it has room."""
        chain = sequence.chain
        if chain is None:
            return
        if len(chain.keys) < sequence.published:
            chain.extend(sequence.tokens)  # it started at another sample's computed prompt
        for number in range(sequence.offered, sequence.published):
            key = chain.keys[number]
            if key in self._known:
                self._counts.written["known"] += 1
            else:
                if len(self._backlog) >= self._limits.backlog_blocks:
                    return
                block_id = sequence.block_ids[number]
                self._cache.share((block_id,))
                self._backlog.append(_Block(sequence, block_id, key, number, self._clock_s()))
                self._known.add(key)
            sequence.offered = number + 1

    def offer_state(self, sequence: Sequence, tokens: int) -> None:
        """Let the state behind so many tokens wait, in place of an earlier one of the sequence."""
        if self._state_group is None:
            return
        assert sequence.chain is not None
        depth = tokens // self._block_tokens - 1
        key = sequence.chain.keys[depth]
        if key in self._known_states:
            return
        self._states[sequence.sequence_id] = _State(key, sequence.chain.root, depth)
        if len(self._states) > _MOST_STATES:
            self._states.popitem(last=False)
            self._counts.written["dropped"] += 1

    def leave(self, sequence: Sequence) -> None:
        """A sequence is about to give its blocks back: what finds no place now is dropped.

        So is all that waits of one whose rows turned out to be no numbers.
        """
        if not sequence.is_exact:
            suspect = [block for block in self._backlog if block.sequence is sequence]
            self._give_up(suspect)
            self._backlog = deque(one for one in self._backlog if one.sequence is not sequence)
            self._states.pop(sequence.sequence_id, None)
            return
        self.offer(sequence)
        self._counts.written["dropped"] += max(0, sequence.published - sequence.offered)

    def tend(self) -> None:
        """Hand over what was copied, and have more copied."""
        self._settle()
        if self._backlog and self._clock_s() - self._backlog[0].since_s > _LONGEST_WAIT_S:
            self.make_room()
        self._read_blocks()
        for _ in range(min(_STATES_AT_ONCE, len(self._states))):
            self._read_state()
        self._settle()
        self._counts.backlog = len(self._backlog)

    def make_room(self) -> None:
        """Drop all that waits; sequences that still run offer it again."""
        self._give_up(self._backlog)
        self._counts.written["dropped"] += len(self._states)
        self._backlog.clear()
        self._states.clear()

    def held_blocks(self) -> Iterator[tuple[int, ...]]:
        """Blocks that wait."""
        yield tuple(block.block_id for block in self._backlog)

    def _waiting(self) -> set[bytes]:
        """Keys of what the store has not been given yet."""
        copied = {one.key for _, finished in self._reads for one in finished}
        return copied | {block.key for block in self._backlog}

    def _give_up(self, blocks: Collection[_Block]) -> None:
        """Blocks of the backlog, which the caller takes from there, are not stored now."""
        for block in blocks:
            self._known.discard(block.key)
            block.sequence.offered = min(block.sequence.offered, block.depth)
        self._cache.release([block.block_id for block in blocks])
        self._counts.written["dropped"] += len(blocks)

    def _read_blocks(self) -> None:
        wanted = min(self._limits.step_blocks, len(self._backlog))
        slots = self._traffic.empty_slots(self._group, wanted) if wanted else []
        if not slots:
            return
        blocks = [self._backlog.popleft() for _ in slots]
        block_ids = [block.block_id for block in blocks]
        event = self._memory.read(block_ids, [slot.view for slot in slots])
        finished = [block.finished(slot) for block, slot in zip(blocks, slots, strict=True)]
        self._reads.append((event, finished))
        # Whoever writes to these blocks next is launched behind the copy.
        self._cache.release(block_ids)

    def _read_state(self) -> None:
        assert self._state_group is not None
        number, state = next(iter(self._states.items()))
        page = self._cache.snapshot_slot(state.key)
        if page is None:
            del self._states[number]
            self._counts.written["dropped"] += 1
            return
        for slot in self._traffic.empty_slots(self._state_group, 1):
            del self._states[number]
            event = self._memory.read((page,), (slot.view,), is_state=True)
            done = Finished(slot, state.key, state.namespace, state.depth, "")
            self._reads.append((event, [done]))
            self._known_states.add(state.key)

    def _settle(self) -> None:
        while self._reads and self._reads[0][0].is_done:
            event, finished = self._reads.popleft()
            try:
                event.wait()
            except Exception:  # noqa: BLE001 - what a component raises: nothing is stored
                self._counts.written["failed"] += len(finished)
                self._forget(finished)
            else:
                self._traffic.hand_over(finished)

    def _forget(self, finished: list[Finished]) -> None:
        """What was to be copied does not go to the store."""
        self._traffic.give_back([one.slot for one in finished])
        for one in finished:
            self._known.discard(one.key)
            self._known_states.discard(one.key)
