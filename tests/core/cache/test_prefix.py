"""Which blocks are found, which are kept, and which make room?"""

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


def test_a_new_cache_has_only_free_blocks_and_knows_no_prefix() -> None:
    cache = cache_of(8)
    assert cache.free_blocks == 8
    assert cache.match(keys_of(3)) == Match((), ())
    assert cache.match([]) == Match((), ())
    cache.check_integrity([], [])


@pytest.mark.parametrize("published", [0, 1, 2, 3])
def test_the_leading_run_of_published_blocks_is_found(published: int) -> None:
    cache = cache_of()
    keys, block_ids = keys_of(3), cache.take(3)
    publish(cache, keys[:published], block_ids[:published])
    assert cache.match(keys).block_ids == block_ids[:published]


def test_a_gap_ends_the_run() -> None:
    cache = cache_of()
    keys, block_ids = keys_of(3), cache.take(3)
    cache.publish(keys[0], block_ids[0])
    cache.publish(keys[2], block_ids[2])
    assert cache.match(keys).block_ids == block_ids[:1]


def test_prompts_with_another_first_token_find_nothing() -> None:
    cache = cache_of()
    cached(cache, keys_of(3))
    assert cache.match(keys_of(3, first=9)) == Match((), ())


def test_an_unpublished_block_is_free_after_its_last_user() -> None:
    cache = cache_of()
    block_ids = cache.take(2)
    cache.share(block_ids)
    cache.release(block_ids)
    assert cache.free_blocks == 6
    cache.release(block_ids)
    assert cache.free_blocks == 8
    cache.check_integrity([], [])


def test_a_published_block_stays_after_its_last_user_and_counts_as_free() -> None:
    cache = cache_of()
    block_ids = cached(cache, keys_of(3))
    assert cache.free_blocks == 8
    assert cache.idle_among(block_ids) == 3
    assert cache.idle_among([8]) == 0
    assert cache.match(keys_of(3)).block_ids == block_ids


def test_sharing_idle_blocks_takes_them_out_of_the_free_ones() -> None:
    cache = cache_of()
    block_ids = cached(cache, keys_of(3))
    cache.share(block_ids[:2])
    assert cache.free_blocks == 6
    assert cache.idle_among(block_ids) == 1
    cache.check_integrity([block_ids[:2]], [])
    with pytest.raises(EngineError, match="7 blocks were asked for, 6 are free"):
        cache.take(7)


def test_a_match_marks_nothing_as_used() -> None:
    cache = cache_of(4)
    cached(cache, keys_of(2))
    cached(cache, keys_of(2, first=9))
    cache.match(keys_of(2))
    cache.take(1)
    assert len(cache.match(keys_of(2)).block_ids) == 1
    assert len(cache.match(keys_of(2, first=9)).block_ids) == 2


@pytest.mark.parametrize(("wanted", "left"), [(4, 4), (5, 3), (6, 2), (7, 1), (8, 0)])
def test_idle_blocks_make_room_from_the_back_and_only_as_many_as_needed(
    wanted: int, left: int
) -> None:
    cache = cache_of(8)
    block_ids = cached(cache, keys_of(4))
    taken = cache.take(wanted)
    assert cache.match(keys_of(4)).block_ids == block_ids[:left]
    assert cache.evicted_blocks == 4 - left
    assert set(taken).isdisjoint(block_ids[:left])
    cache.check_integrity([taken], [])


def test_taking_more_than_is_free_evicts_nothing() -> None:
    cache = cache_of(8)
    held = cache.take(3)
    cached(cache, keys_of(4))
    with pytest.raises(EngineError, match="6 blocks were asked for, 5 are free"):
        cache.take(6)
    assert len(cache.match(keys_of(4)).block_ids) == 4
    cache.check_integrity([held], [])


@pytest.mark.parametrize("wanted", [-1, 9])
def test_an_impossible_number_of_blocks_is_an_error(wanted: int) -> None:
    with pytest.raises(EngineError, match=f"{wanted} blocks were asked for"):
        cache_of(8).take(wanted)


def test_the_prefix_used_longest_ago_makes_room_first() -> None:
    cache = cache_of(6)
    for first in (0, 1, 2):
        cached(cache, keys_of(2, first=first))
    again = cache.match(keys_of(2, first=0)).block_ids
    cache.share(again)
    cache.release(again)
    cache.take(2)
    assert [len(cache.match(keys_of(2, first=n)).block_ids) for n in (0, 1, 2)] == [2, 0, 2]


def test_a_held_block_never_makes_room() -> None:
    cache = cache_of(6)
    block_ids = cached(cache, keys_of(4))
    cache.share(block_ids[:2])
    taken = cache.take(4)
    assert set(taken).isdisjoint(block_ids[:2])
    assert cache.match(keys_of(4)).block_ids == block_ids[:2]
    cache.check_integrity([block_ids[:2], taken], [])


def test_publishing_twice_changes_nothing() -> None:
    cache = cache_of()
    keys, block_ids = keys_of(1), cache.take(1)
    publish(cache, keys, block_ids)
    publish(cache, keys, block_ids)
    cache.check_integrity([block_ids], [])
    cache.release(block_ids)
    publish(cache, keys, block_ids)
    cache.check_integrity([], [])


def test_a_block_cannot_take_a_second_key() -> None:
    cache = cache_of()
    block_ids = cache.take(1)
    cache.publish(b"one", block_ids[0])
    with pytest.raises(EngineError, match=f"block {block_ids[0]} is published under another key"):
        cache.publish(b"two", block_ids[0])
    assert cache.match([b"two"]).block_ids == ()
    cache.check_integrity([block_ids], [])


@pytest.mark.parametrize("block_id", [1, 8])
def test_publishing_a_block_that_nobody_holds_is_an_error(block_id: int) -> None:
    cache = cache_of(8)
    with pytest.raises(EngineError, match=f"block {block_id} was to be published"):
        cache.publish(b"key", block_id)
    cache.check_integrity([], [])


def test_sharing_an_unused_block_is_an_error_that_changes_nothing() -> None:
    cache = cache_of()
    block_ids = cached(cache, keys_of(1))
    with pytest.raises(EngineError, match="block 5 has fewer than 1 users"):
        cache.share([*block_ids, 5])
    assert cache.idle_among(block_ids) == 1
    cache.check_integrity([], [])


def test_releasing_an_idle_block_is_an_error_that_changes_nothing() -> None:
    cache = cache_of()
    held = cache.take(1)
    block_ids = cached(cache, keys_of(1))
    with pytest.raises(EngineError, match=f"block {block_ids[0]} has fewer than 1 users"):
        cache.release([*held, *block_ids])
    cache.check_integrity([held], [])


def test_releasing_a_published_block_more_often_than_it_is_held_is_an_error() -> None:
    cache = cache_of()
    block_ids = cache.take(1)
    publish(cache, keys_of(1), block_ids)
    with pytest.raises(EngineError, match="fewer than 2 users"):
        cache.release([*block_ids, *block_ids])
    cache.check_integrity([block_ids], [])


def test_samples_that_share_a_prefix_release_it_one_by_one() -> None:
    cache = cache_of()
    block_ids = cache.take(2)
    publish(cache, keys_of(2), block_ids)
    cache.share(block_ids)
    cache.share(block_ids)
    for holders in (2, 1):
        cache.release(block_ids)
        assert cache.idle_among(block_ids) == 0
        cache.check_integrity([block_ids] * holders, [])
    cache.release(block_ids)
    assert cache.idle_among(block_ids) == 2


def test_clearing_forgets_idle_blocks_and_leaves_held_ones_with_their_users() -> None:
    cache = cache_of()
    cached(cache, keys_of(2, first=9))
    keys = keys_of(2)
    first, second = cache.take(2), cache.take(2)
    publish(cache, keys, first)
    publish(cache, keys, second)
    cache.clear()
    assert cache.match(keys).block_ids == cache.match(keys_of(2, first=9)).block_ids == ()
    assert cache.free_blocks == 4
    cache.check_integrity([first, second], [])
    cache.release(first)
    cache.release(second)
    assert cache.free_blocks == 8
    cache.check_integrity([], [])


def test_lookups_and_reused_blocks_are_counted() -> None:
    cache = cache_of()
    cache.count_lookup(0)
    cache.count_lookup(3)
    cache.match(keys_of(2))
    assert (cache.lookups, cache.hit_blocks, cache.evicted_blocks) == (2, 3, 0)
