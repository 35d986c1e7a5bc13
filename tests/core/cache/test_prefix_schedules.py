"""Does the prefix cache agree with a naive model of it under any sequence of calls?

The model keeps, for every key, the set of blocks with that content, and scans all of it each time.
Texts are made of two letters, one letter a block, so that prefixes are often shared; a block's key
is its text, and so is its content.
"""

from collections import Counter
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from deepinfer_core.cache.pool import PagePool
from deepinfer_core.cache.prefix import PrefixCache
from deepinfer_core.errors import EngineError
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

LONGEST = 4
TEXTS = ["".join(text) for n in range(1, LONGEST + 1) for text in product("ab", repeat=n)]
NUMBERS = st.integers(0, 7)
BLOCK_TOKENS = 16
MAX_RUNNING = 3


@dataclass
class Running:
    """A sequence: its text, its blocks so far, its state slot."""

    text: str
    block_ids: list[int]
    slot: int
    publishes: bool = True


def keys_of(text: str) -> list[bytes]:
    return [text[: n + 1].encode() for n in range(len(text))]


class Schedules(RuleBasedStateMachine):
    """The cache under test, the sequences, and the naive model."""

    @initialize(blocks=st.integers(3, 12), snapshots=st.integers(0, 3))
    def start(self, blocks: int, snapshots: int) -> None:
        self.usable, self.max_snapshots = blocks, snapshots
        self.pool = PagePool(blocks + 1)
        self.slots = PagePool(1 + MAX_RUNNING + snapshots, "state slot")
        self.cache = PrefixCache(
            self.pool, self.slots, block_tokens=BLOCK_TOKENS, max_snapshots=snapshots
        )
        self.running: list[Running] = []
        self.content: dict[int, bytes] = {}  # what was last written to a block
        self.with_key: dict[bytes, set[int]] = {}  # blocks in memory with a key
        self.handed_out: dict[bytes, int] = {}
        self.idle_since: dict[bytes, int] = {}
        self.clock = 0
        self.reserved: set[int] = set()
        self.snapshots: dict[bytes, int] = {}
        self.used_at: dict[int, int] = {}
        self.evicted_blocks = self.evicted_snapshots = 0

    # What the naive model knows.

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def users(self) -> Counter[int]:
        return Counter(block_id for item in self.running for block_id in item.block_ids)

    def is_lost_with(self, key: bytes) -> bool:
        """Would evicting the block that is handed out lose the key?"""
        return len(self.with_key[key]) == 1

    def idle_keys(self) -> list[bytes]:
        users = self.users()
        return [key for key, block_id in self.handed_out.items() if not users[block_id]]

    def free_blocks(self) -> int:
        return self.usable - len(self.users())

    def unused_blocks(self) -> int:
        return self.free_blocks() - len(self.idle_keys())

    def lose(self, key: bytes) -> None:
        del self.with_key[key], self.handed_out[key]
        self.evicted_blocks += 1
        self.snapshots.pop(key, None)

    # Sequences.

    def taken(self, wanted: int) -> tuple[int, ...]:
        """Take blocks, and let the model lose what must make room for them."""
        missing = max(0, wanted - self.unused_blocks())
        idle = self.idle_keys()
        harmless = {key for key in idle if not self.is_lost_with(key)}
        rest = sorted(set(idle) - harmless, key=self.idle_since.__getitem__)
        block_ids = self.cache.take(wanted)
        evicted = {key for key in idle if self.handed_out[key] in block_ids}
        assert len(evicted) == missing
        if missing <= len(harmless):
            assert evicted <= harmless
        else:
            assert evicted == harmless | set(rest[: missing - len(harmless)])
        for key in evicted & harmless:
            self.with_key[key].discard(self.handed_out[key])
            [self.handed_out[key]] = self.cache.match([key]).block_ids
            assert self.handed_out[key] in self.with_key[key]
        for key in evicted - harmless:
            self.lose(key)
        return block_ids

    @precondition(lambda self: len(self.running) < MAX_RUNNING)
    @rule(text=st.sampled_from(TEXTS), reuse=st.integers(0, LONGEST))
    def admit(self, text: str, reuse: int) -> None:
        found = self.cache.match(keys_of(text))
        run = [self.handed_out.get(key) for key in keys_of(text)]
        run = run[: run.index(None)] if None in run else run
        assert list(found.block_ids) == run
        assert list(found.snapshots) == [
            BLOCK_TOKENS * (n + 1)
            for n, key in enumerate(keys_of(text)[: len(run)])
            if key in self.snapshots
        ]
        block_ids = found.block_ids[:reuse]
        users = self.users()
        assert self.cache.idle_among(block_ids) == sum(not users[item] for item in block_ids)
        self.cache.share(block_ids)
        [slot] = self.slots.take(1)
        self.running.append(Running(text, list(block_ids), slot))

    @precondition(lambda self: self.running and len(self.running) < MAX_RUNNING)
    @rule(number=NUMBERS)
    def fork(self, number: int) -> None:
        item = self.running[number % len(self.running)]
        self.cache.share(item.block_ids)
        [slot] = self.slots.take(1)
        self.running.append(Running(item.text, [*item.block_ids], slot, item.publishes))

    @precondition(lambda self: self.running)
    @rule(number=NUMBERS, wanted=st.integers(1, LONGEST))
    def grow(self, number: int, wanted: int) -> None:
        item = self.running[number % len(self.running)]
        wanted = min(wanted, len(item.text) - len(item.block_ids))
        if wanted > self.free_blocks():
            with pytest.raises(EngineError, match="were asked for"):
                self.cache.take(wanted)
            return
        for block_id in self.taken(wanted):
            item.block_ids.append(block_id)
            self.content[block_id] = item.text[: len(item.block_ids)].encode()

    @precondition(lambda self: any(item.publishes for item in self.running))
    @rule(number=NUMBERS)
    def publish(self, number: int) -> None:
        able = [item for item in self.running if item.publishes]
        item = able[number % len(able)]
        for key, block_id in zip(keys_of(item.text), item.block_ids, strict=False):
            self.cache.publish(key, block_id)
            known = self.with_key.setdefault(key, set())
            if block_id not in known:
                known.add(block_id)
                first = self.handed_out.setdefault(key, block_id)
                if not self.users()[first]:  # the idle one makes room at once
                    known.discard(first)
                    [self.handed_out[key]] = self.cache.match([key]).block_ids
                    assert self.handed_out[key] in known

    @precondition(lambda self: self.running)
    @rule(number=NUMBERS)
    def leave(self, number: int) -> None:
        item = self.running.pop(number % len(self.running))
        self.cache.release(item.block_ids)
        self.slots.release([item.slot])
        users = self.users()
        for block_id in reversed(item.block_ids):
            if users[block_id]:
                continue
            for key, known in self.with_key.items():
                if block_id in known:
                    if self.handed_out[key] != block_id:
                        known.discard(block_id)
                    self.idle_since[key] = self.tick()

    @precondition(lambda self: self.running)
    @rule(number=NUMBERS)
    def release_too_often(self, number: int) -> None:
        item = self.running[number % len(self.running)]
        if item.block_ids:
            times = self.users()[item.block_ids[-1]] + 1
            with pytest.raises(EngineError, match=f"fewer than {times} users"):
                self.cache.release([*item.block_ids, *item.block_ids[-1:] * (times - 1)])

    @rule(chance=st.integers(0, 9))
    def clear(self, chance: int) -> None:
        if chance:
            return
        self.cache.clear()
        self.with_key.clear()
        self.handed_out.clear()
        self.snapshots.clear()
        for item in self.running:
            item.publishes = False  # the blocks before its next one are no longer known

    # Snapshots.

    @rule()
    def reserve(self) -> None:
        held = len(self.reserved) + len(self.snapshots)
        slot = self.cache.reserve_snapshot()
        if held < self.max_snapshots:
            assert slot not in (None, *self.snapshots.values(), *self.reserved)
        elif self.snapshots:
            assert slot not in (None, *self.reserved)
            gone, _ = min(self.snapshots.items(), key=lambda item: self.used_at[item[1]])
            del self.snapshots[gone]
            self.evicted_snapshots += 1
        else:
            assert slot is None
        self.reserved |= {slot} - {None}

    @precondition(lambda self: self.reserved and self.running)
    @rule(number=NUMBERS, place=NUMBERS)
    def publish_snapshot(self, number: int, place: int) -> None:
        item = self.running[number % len(self.running)]
        if not item.block_ids or not item.publishes:
            return
        key = keys_of(item.text)[place % len(item.block_ids)]
        slot = min(self.reserved)
        self.reserved.discard(slot)
        self.cache.publish_snapshot(key, slot)
        self.used_at[self.snapshots.setdefault(key, slot)] = self.tick()

    @precondition(lambda self: self.reserved)
    @rule()
    def drop_snapshot(self) -> None:
        self.cache.drop_snapshot(self.reserved.pop())

    @rule(text=st.sampled_from(TEXTS))
    def look_up_snapshot(self, text: str) -> None:
        slot = self.cache.snapshot_slot(text.encode())
        assert slot == self.snapshots.get(text.encode())
        if slot is not None:
            self.used_at[slot] = self.tick()

    # What holds at all times.

    @invariant()
    def the_books_agree(self) -> None:
        own_slots = [*self.reserved, *self.snapshots.values()]
        assert self.cache.reserved_slots == self.reserved
        self.cache.check_integrity(
            [item.block_ids for item in self.running], [[item.slot] for item in self.running]
        )
        self.slots.check_integrity([[item.slot] for item in self.running] + [own_slots])
        assert self.cache.free_blocks == self.free_blocks()
        references = sum(self.pool.users(page) for page in range(self.usable + 1))
        held = sum(len(item.block_ids) for item in self.running)
        assert references == held + len(self.handed_out)
        assert self.cache.evicted_blocks == self.evicted_blocks
        assert self.cache.evicted_snapshots == self.evicted_snapshots

    @invariant()
    def cached_and_held_blocks_have_the_content_of_their_key(self) -> None:
        for text in TEXTS:
            found = self.cache.match([text.encode()]).block_ids
            assert found == tuple(filter(None, [self.handed_out.get(text.encode())]))
            assert all(self.content[block_id] == text.encode() for block_id in found)
        for item in self.running:
            texts = [self.content[block_id] for block_id in item.block_ids]
            assert texts == keys_of(item.text)[: len(texts)]

    @invariant()
    def whatever_is_cached_can_be_reached(self) -> None:
        for key in self.handed_out:
            assert key[:-1] in self.handed_out or len(key) == 1

    def teardown(self) -> None:
        """All give back what they hold: nothing is left."""
        for item in self.running:
            self.cache.release(item.block_ids)
            self.slots.release([item.slot])
        for slot in self.reserved:
            self.cache.drop_snapshot(slot)
        self.cache.clear()
        self.cache.check_integrity([], [])
        assert self.cache.free_blocks == self.usable == self.pool.free_count


class TestSchedules(Schedules.TestCase):  # type: ignore[name-defined, misc]
    """Run by pytest."""

    settings: Any = settings(max_examples=100, stateful_step_count=40, deadline=None)
