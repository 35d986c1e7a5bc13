"""Which blocks of a new prompt are in memory already, and which cached block makes room?

Every complete block of an exact sequence can be *published* under its key. While a sequence holds
it, it is in use like any other block; when nobody does, it stays, *idle*, until its page is needed.
Idle blocks count as free. The pool's own books stay exact: the cache is one user of each published
block, so that a block with that user alone is an idle one.

Sequences hold the blocks of a whole prefix, publish them front to back and release them together.
Then the block that was idle for longest is never one that another cached block follows, and a
cached block's predecessors are always cached too. Two sequences that compute the same block at a
time leave a *copy*: the first one published is handed out; if it makes room while a copy is still
held, the copy takes over its key.

No operation looks at more than the blocks that it is given or evicts.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from deepinfer_core.cache.copies import BlockCopies
from deepinfer_core.cache.pool import PagePool
from deepinfer_core.cache.snapshots import SnapshotShelf
from deepinfer_core.errors import EngineError

__all__ = ["Match", "PrefixCache"]


class Match(NamedTuple):
    """What is cached of a prompt. A named tuple: it is made for waiting sequences in every step.

    Attributes:
        block_ids: of the longest leading run of cached blocks.
        snapshots: boundaries in tokens, ascending, within the run, at which a state can be
            restored.
    """

    block_ids: tuple[int, ...]
    snapshots: tuple[int, ...]


class PrefixCache:
    """The blocks and snapshots of one engine, cached ones included.

    Args:
        blocks: all blocks. They are taken, shared and released through this object alone.
        slots: all state slots; those of snapshots are taken from here.
        block_tokens: tokens of a block.
        max_snapshots: most state slots that snapshots may take.

    Attributes:
        lookups: sequences that were looked up for good, see ``count_lookup``.
        hit_blocks: blocks that these took over.
        evicted_blocks: cached blocks that made room for others.
    """

    def __init__(
        self, blocks: PagePool, slots: PagePool, *, block_tokens: int, max_snapshots: int
    ) -> None:
        self.lookups = 0
        self.hit_blocks = 0
        self.evicted_blocks = 0
        self._blocks = blocks
        self._slots = slots
        self._block_tokens = block_tokens
        self._snapshots = SnapshotShelf(slots, max_snapshots)
        self._block_of: dict[bytes, int] = {}
        # Of every published block that is in memory, copies included.
        self._key_of: dict[int, bytes] = {}
        self._copies = BlockCopies()
        # Published blocks that nobody holds, the next one to make room first.
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def free_blocks(self) -> int:
        """Blocks that ``take`` can hand out: unused ones and idle ones."""
        return self._blocks.free_count + len(self._idle)

    @property
    def idle_blocks(self) -> int:
        """Published blocks that nobody holds."""
        return len(self._idle)

    @property
    def snapshot_slots(self) -> int:
        """State slots that snapshots take, reserved ones included."""
        return len(self._snapshots)

    @property
    def evicted_snapshots(self) -> int:
        """Snapshots that made room for others."""
        return self._snapshots.evicted

    def take(self, wanted: int) -> tuple[int, ...]:
        """Hand out blocks with contents that mean nothing; the caller is their only user.

        Raises:
            EngineError: fewer are free; nothing was handed out or evicted.
        """
        if not 0 <= wanted <= self.free_blocks:
            raise EngineError(f"{wanted} blocks were asked for, {self.free_blocks} are free")
        for _ in range(wanted - self._blocks.free_count):
            self._evict(next(iter(self._idle)))
        return self._blocks.take(wanted)

    def share(self, block_ids: Sequence[int]) -> None:
        """Count one more user of blocks, e.g. of those a match has just found.

        Raises:
            EngineError: a block is unused or does not exist; nothing was changed.
        """
        self._blocks.share(block_ids)
        for block_id in block_ids:
            self._idle.pop(block_id, None)

    def release(self, block_ids: Sequence[int]) -> None:
        """Count one user fewer; a published block without users is idle, any other is unused.

        The last one goes first: give the blocks of a sequence in order, all at once.

        Raises:
            EngineError: a block has no user to take off; nothing was changed.
        """
        for block_id, times in Counter(block_ids).items():
            if self._is_handed_out(block_id) and self._blocks.users(block_id) <= times:
                raise EngineError(f"block {block_id} has fewer than {times} users beside the cache")
        self._blocks.release(block_ids)
        for block_id in reversed(block_ids):
            key = self._key_of.get(block_id)
            if key is None:
                continue
            if self._block_of[key] != block_id:
                if not self._blocks.users(block_id):
                    self._forget_copy(key, block_id)
            elif self._blocks.users(block_id) == 1:
                self._idle[block_id] = None
                # With a copy about, room is made here at no loss.
                self._idle.move_to_end(block_id, last=key not in self._copies)

    def match(self, keys: Iterable[bytes]) -> Match:
        """Find the longest leading run of cached blocks. Changes nothing, marks nothing as used.

        What it names is there until the next ``take``, ``publish`` or ``clear``.
        """
        block_ids: list[int] = []
        snapshots: list[int] = []
        for key in keys:
            block_id = self._block_of.get(key)
            if block_id is None:
                break
            block_ids.append(block_id)
            if key in self._snapshots:
                snapshots.append(len(block_ids) * self._block_tokens)
        return Match(tuple(block_ids), tuple(snapshots))

    def count_lookup(self, reused_blocks: int) -> None:
        """Count a sequence that starts, with how many cached blocks it took over."""
        self.lookups += 1
        self.hit_blocks += reused_blocks

    def idle_among(self, block_ids: Iterable[int]) -> int:
        """How many of these blocks are idle, and so count as free."""
        return sum(block_id in self._idle for block_id in block_ids)

    def sole_among(self, block_ids: Iterable[int]) -> int:
        """How many of these held blocks have one user beside the cache, so that he can free them.

        A copy of a published block counts, a block that two sequences share does not.
        """
        users = self._blocks.users
        return sum(users(block_id) == 1 + self._is_handed_out(block_id) for block_id in block_ids)

    def publish(self, key: bytes, block_id: int) -> None:
        """Let others find a block that the caller holds and has filled; doing so twice is no harm.

        The blocks before it must have been published. The first block of a key is handed out for as
        long as anybody holds it; an idle one makes room for this one, which has the same bytes.

        Raises:
            EngineError: nobody holds the block, or it has another key.
        """
        known = self._key_of.get(block_id)
        if known is not None:
            if known != key:
                raise EngineError(f"block {block_id} is published under another key")
            return
        if not self._blocks.users(block_id):
            raise EngineError(f"block {block_id} was to be published, but nobody holds it")
        self._key_of[block_id] = key
        first = self._block_of.get(key)
        if first is None:
            self._hand_out(key, block_id)
            return
        self._copies.add(key, block_id)
        if first in self._idle:
            self._evict(first)

    def reserve_snapshot(self) -> int | None:
        """Take a state slot to copy a state to; None if all are reserved.

        The snapshot that was used longest ago makes room if need be.
        """
        return self._snapshots.reserve()

    def publish_snapshot(self, key: bytes, slot: int) -> None:
        """Let others restore a reserved slot: the state right behind the block of this key.

        If there is such a snapshot, the slot is given back.

        Raises:
            EngineError: the slot is not reserved.
        """
        self._snapshots.publish(key, slot)

    def drop_snapshot(self, slot: int) -> None:
        """Give back a slot that was reserved in vain.

        Raises:
            EngineError: the slot is not reserved.
        """
        self._snapshots.drop(slot)

    def snapshot_slot(self, key: bytes) -> int | None:
        """The snapshot behind the block of this key, which counts as used now; None without one."""
        return self._snapshots.find(key)

    @property
    def reserved_slots(self) -> frozenset[int]:
        """Slots that are reserved and not published yet."""
        return self._snapshots.reserved

    def clear(self) -> None:
        """Forget everything published. Blocks in use and reserved slots stay held."""
        self._snapshots.clear()
        for block_id in self._block_of.values():
            self._blocks.release([block_id])
        self._block_of.clear()
        self._key_of.clear()
        self._copies.clear()
        self._idle.clear()

    def check_integrity(
        self, block_holders: Iterable[Sequence[int]], slot_holders: Iterable[Sequence[int]]
    ) -> None:
        """Compare all books with each other and with what sequences say they hold.

        Args:
            block_holders: the blocks of each sequence.
            slot_holders: the state slots of each sequence.

        Raises:
            EngineError: something is lost, or held otherwise than counted.
        """
        own = list(self._block_of.values())
        self._blocks.check_integrity(chain(block_holders, [own]))
        self._slots.check_integrity(chain(slot_holders, [list(self._snapshots)]))
        self._snapshots.check_integrity()
        handed_out = {block_id: key for key, block_id in self._block_of.items()}
        copies = self._copies.keys()
        idle = {block_id for block_id in own if self._blocks.users(block_id) == 1}
        if (
            handed_out | copies != self._key_of
            or not handed_out.keys().isdisjoint(copies)
            or idle != self._idle.keys()
            or not all(self._blocks.users(block_id) for block_id in copies)
        ):
            raise EngineError("the books of the prefix cache contradict each other")

    def _is_handed_out(self, block_id: int) -> bool:
        key = self._key_of.get(block_id)
        return key is not None and self._block_of[key] == block_id

    def _hand_out(self, key: bytes, block_id: int) -> None:
        self._blocks.share([block_id])
        self._block_of[key] = block_id

    def _evict(self, block_id: int) -> None:
        """Free an idle block; its key goes to a copy if one is held."""
        del self._idle[block_id]
        key = self._key_of.pop(block_id)
        self._blocks.release([block_id])
        heir = self._copies.take_first(key)
        if heir is not None:
            self._hand_out(key, heir)
            return
        del self._block_of[key]
        self._snapshots.forget(key)
        self.evicted_blocks += 1

    def _forget_copy(self, key: bytes, block_id: int) -> None:
        """A copy was freed: the block that is handed out stands for it, as used now if idle."""
        del self._key_of[block_id]
        self._copies.remove(key, block_id)
        first = self._block_of[key]
        if first in self._idle:
            self._idle.move_to_end(first, last=key not in self._copies)
