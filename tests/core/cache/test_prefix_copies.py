"""What of copies of a block and of snapshots behind one, and does a wrong book show?"""

import pytest
from deepinfer_core.cache.keys import KeyChain
from deepinfer_core.cache.pool import PagePool
from deepinfer_core.cache.prefix import Match, PrefixCache
from deepinfer_core.errors import EngineError

BLOCK = 4


def cache_of(blocks: int = 8, slots: int = 4, snapshots: int = 2) -> PrefixCache:
    """A cache with so many usable blocks and state slots."""
    return PrefixCache(
        PagePool(blocks + 1),
        PagePool(slots + 1, "state slot"),
        block_tokens=BLOCK,
        max_snapshots=snapshots,
    )


def keys_of(blocks: int, first: int = 0) -> list[bytes]:
    chain = KeyChain(b"root", BLOCK)
    chain.extend([first, *range(1, BLOCK * blocks)])
    return chain.keys


def publish(cache: PrefixCache, keys: list[bytes], block_ids: tuple[int, ...]) -> None:
    for key, block_id in zip(keys, block_ids, strict=True):
        cache.publish(key, block_id)


def cached(cache: PrefixCache, keys: list[bytes]) -> tuple[int, ...]:
    """Take, publish and release blocks for keys."""
    block_ids = cache.take(len(keys))
    publish(cache, keys, block_ids)
    cache.release(block_ids)
    return block_ids


def test_the_first_writer_s_block_is_handed_out_while_it_is_held() -> None:
    cache = cache_of()
    keys = keys_of(2)
    first, second = cache.take(2), cache.take(2)
    publish(cache, keys, first)
    publish(cache, keys, second)
    assert cache.match(keys).block_ids == first
    cache.check_integrity([first, second], [])
    cache.release(second)
    assert cache.free_blocks == 6
    assert cache.match(keys).block_ids == first


def test_an_idle_block_makes_room_for_a_held_one_with_its_key() -> None:
    cache = cache_of()
    keys = keys_of(2)
    cached(cache, keys)
    second = cache.take(2)
    publish(cache, keys, second)
    assert cache.match(keys).block_ids == second
    assert cache.free_blocks == 6
    assert cache.evicted_blocks == 0
    cache.check_integrity([second], [])


def test_a_copy_takes_over_when_the_first_writer_s_block_makes_room() -> None:
    cache = cache_of(4)
    keys = keys_of(2)
    first, second = cache.take(2), cache.take(2)
    publish(cache, keys, first)
    publish(cache, keys, second)
    cache.release(first)
    assert cache.match(keys).block_ids == first
    taken = cache.take(2)
    assert set(taken) == set(first)
    assert cache.match(keys).block_ids == second
    assert cache.evicted_blocks == 0
    cache.check_integrity([second, taken], [])


def test_what_a_copy_replaces_makes_room_before_anything_that_would_be_lost() -> None:
    cache = cache_of(6)
    keys = keys_of(2)
    cached(cache, keys_of(2, first=9))
    first, second = cache.take(2), cache.take(2)
    publish(cache, keys, first)
    publish(cache, keys, second)
    cache.release(first)
    cache.take(2)
    assert len(cache.match(keys_of(2, first=9)).block_ids) == 2


def test_blocks_behind_a_copy_stay_reachable() -> None:
    # A second sequence computes the same first block and goes on; the first block is older.
    cache = cache_of(4)
    keys = keys_of(2)
    first = cache.take(1)
    second = cache.take(2)
    publish(cache, keys[:1], first)
    publish(cache, keys, second)
    cache.release(first)
    cache.release(second)
    assert cache.match(keys).block_ids == (first[0], second[1])
    cache.take(3)
    assert cache.match(keys).block_ids == first


def test_a_match_names_the_snapshots_within_the_run() -> None:
    cache = cache_of()
    keys = keys_of(4)
    block_ids = cache.take(3)
    publish(cache, keys[:3], block_ids)
    for number in (3, 0):
        slot = cache.reserve_snapshot()
        assert slot is not None
        cache.publish_snapshot(keys[number], slot)
    assert cache.match(keys).snapshots == (BLOCK,)
    cache.publish(keys[3], *cache.take(1))
    assert cache.match(keys).snapshots == (BLOCK, 4 * BLOCK)


def test_a_snapshot_goes_with_the_block_in_front_of_it() -> None:
    cache = cache_of(8)
    keys = keys_of(2)
    cached(cache, keys)
    slot = cache.reserve_snapshot()
    assert slot is not None
    cache.publish_snapshot(keys[1], slot)
    cache.take(7)
    assert cache.snapshot_slot(keys[1]) is None
    assert cache.evicted_snapshots == 0
    with pytest.raises(EngineError):
        cache.check_integrity([], [[slot]])


def test_a_snapshot_stays_when_a_copy_takes_over_the_block() -> None:
    cache = cache_of(4)
    keys = keys_of(1)
    first, second = cache.take(1), cache.take(1)
    publish(cache, keys, first)
    publish(cache, keys, second)
    slot = cache.reserve_snapshot()
    assert slot is not None
    cache.publish_snapshot(keys[0], slot)
    cache.release(first)
    cache.take(3)
    assert cache.match(keys) == Match(second, (BLOCK,))


def test_integrity_finds_a_holder_that_is_not_named() -> None:
    cache = cache_of()
    held = cache.take(1)
    publish(cache, keys_of(1), held)
    with pytest.raises(EngineError, match=r"blocks \[1\]"):
        cache.check_integrity([], [])
    with pytest.raises(EngineError, match=r"blocks \[1\]"):
        cache.check_integrity([held, held], [])


def test_integrity_finds_a_state_slot_that_is_not_named() -> None:
    slots = PagePool(3, "state slot")
    cache = PrefixCache(PagePool(3), slots, block_tokens=BLOCK, max_snapshots=1)
    held = slots.take(1)
    cache.reserve_snapshot()
    cache.check_integrity([], [held])
    with pytest.raises(EngineError, match=r"state slots \[1\]"):
        cache.check_integrity([], [])
    with pytest.raises(EngineError, match=r"state slots \[2\]"):
        cache.check_integrity([], [held, (2,)])


@pytest.mark.parametrize("book", ["_idle", "_key_of", "_copies"])
def test_integrity_finds_books_that_contradict_each_other(book: str) -> None:
    cache = cache_of()
    cached(cache, keys_of(1, first=9))
    keys = keys_of(1)
    first, second = cache.take(1), cache.take(1)
    publish(cache, keys, first)
    publish(cache, keys, second)
    cache.check_integrity([first, second], [])
    getattr(cache, book).clear()
    with pytest.raises(EngineError, match="books of the prefix cache"):
        cache.check_integrity([first, second], [])


def test_integrity_finds_a_snapshot_that_is_no_longer_accounted_for() -> None:
    cache = cache_of()
    slot = cache.reserve_snapshot()
    assert slot is not None
    cache.publish_snapshot(b"a", slot)
    cache.check_integrity([], [])
    cache._snapshots._slot_of.clear()
    with pytest.raises(EngineError, match=rf"state slots \[{slot}\]"):
        cache.check_integrity([], [])


def test_integrity_finds_snapshots_that_contradict_each_other() -> None:
    # Two users of one slot, and two keys for it: the pool's own books agree.
    slots = PagePool(3, "state slot")
    cache = PrefixCache(PagePool(3), slots, block_tokens=BLOCK, max_snapshots=2)
    slot = cache.reserve_snapshot()
    assert slot is not None
    cache.publish_snapshot(b"a", slot)
    slots.share([slot])
    cache._snapshots._slot_of[b"b"] = slot
    with pytest.raises(EngineError, match="books of the state snapshots"):
        cache.check_integrity([], [])
