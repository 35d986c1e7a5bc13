"""What goes from a pool, when, and by whom?"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from deepinfer_cluster.store import MooncakeStore
from deepinfer_cluster.testing.fake_pool import FakePool
from deepinfer_core.errors import EngineError
from deepinfer_core.testing.contracts.kv_store_suite import chain, item, key
from deepinfer_core.testing.store_groups import BLOCKS, STATES

FOREVER = math.inf
DAY_S = 86400.0
ONE, OTHER = (hashlib.sha256(name).digest() for name in (b"one", b"other"))
Make = Callable[..., MooncakeStore]


@pytest.fixture
def pool() -> FakePool:
    return FakePool(nodes=2)


def opened(pool: FakePool, new_store: Make, **terms: object) -> MooncakeStore:
    store = new_store(pool, **terms)
    store.open([BLOCKS, STATES])
    return store


def read(store: MooncakeStore, name: object) -> str:
    room = bytearray(BLOCKS.block_bytes)
    (outcome,) = store.load("blocks", [key(name)], [room], deadline_s=FOREVER)
    return outcome.status


def test_an_expired_block_is_a_miss_whoever_sweeps_and_can_be_stored_again(
    pool: FakePool, new_store: Make, wall: object
) -> None:
    store = opened(pool, new_store, sweeps=False)
    store.store("blocks", [item(0), item(1, retention="chat")], deadline_s=FOREVER)
    wall.now_s += 3 * DAY_S - 1.0
    assert read(store, 0) == "hit"
    wall.now_s += 1.0
    assert store.sweep(deadline_s=FOREVER) == 0
    assert [read(store, 0), read(store, 1)] == ["miss", "hit"]
    assert store.report().removed == {"expired": 1}
    (outcome,) = store.store("blocks", [item(0)], deadline_s=FOREVER)
    assert outcome.status == "stored"
    assert read(store, 0) == "hit"


def test_a_sweep_reads_each_header_once_until_its_time_has_come(
    pool: FakePool, new_store: Make, wall: object
) -> None:
    store = opened(pool, new_store)
    store.store("blocks", chain("text", 5), deadline_s=FOREVER)
    for _ in range(3):
        assert store.sweep(deadline_s=FOREVER) == 0
    assert pool.calls.count("get_into_ranges") == 1
    wall.now_s += 3 * DAY_S
    assert store.sweep(deadline_s=FOREVER) == 5
    assert pool.calls.count("get_into_ranges") == 2


def test_a_sweep_leaves_what_was_stored_again_since_it_looked(
    pool: FakePool, new_store: Make, wall: object
) -> None:
    store = opened(pool, new_store)
    store.store("blocks", [item(0)], deadline_s=FOREVER)
    store.sweep(deadline_s=FOREVER)
    wall.now_s += 2 * DAY_S
    store.drop()
    store.store("blocks", [item(0)], deadline_s=FOREVER)
    wall.now_s += 2 * DAY_S
    assert store.sweep(deadline_s=FOREVER) == 0
    assert read(store, 0) == "hit"


def test_a_sweep_removes_what_is_damaged_in_front(pool: FakePool, new_store: Make) -> None:
    store = opened(pool, new_store)
    store.store("blocks", [item(0), item(1), item(2)], deadline_s=FOREVER)
    pool.kept[f"ours/blocks/{key(0).hex()}"].data[50] ^= 1
    del pool.kept[f"ours/blocks/{key(1).hex()}"].data[100:]
    assert store.sweep(deadline_s=FOREVER) == 2
    assert store.report().removed == {"damaged": 2}
    assert list(pool.kept) == [f"ours/blocks/{key(2).hex()}"]


def test_objects_of_others_are_left_alone(pool: FakePool, new_store: Make, wall: object) -> None:
    other = new_store(pool, pool="theirs")
    other.open([BLOCKS])
    other.store("blocks", [item(0, namespace=ONE)], deadline_s=FOREVER)
    names = ["ours", "ours/blocks/x", "oursx/blocks/" + "0" * 64]
    for name in names:
        pool.put(name, b"not a record of ours")
    store = opened(pool, new_store)
    assert store.find("blocks", [key(0)], deadline_s=FOREVER)[0].status == "miss"
    store.store("blocks", [item(0, namespace=ONE)], deadline_s=FOREVER)
    wall.now_s += 8 * DAY_S
    assert store.sweep(deadline_s=FOREVER) == 1
    assert store.drop(ONE) == 0
    assert set(names) < set(pool.kept)
    assert len(pool.kept) == 4


def test_a_namespace_is_dropped_whichever_process_stored_it(
    pool: FakePool, new_store: Make
) -> None:
    one, other = opened(pool, new_store), opened(pool, new_store)
    one.store("blocks", chain("a", 300, namespace=ONE)[:200], deadline_s=FOREVER)
    one.store("state", [item("s", STATES, namespace=ONE)], deadline_s=FOREVER)
    other.store("blocks", chain("b", 7, namespace=OTHER), deadline_s=FOREVER)
    assert other.drop(ONE) == 201
    assert len(pool.kept) == 7
    assert other.report().removed == {"dropped": 201}


def test_a_namespace_on_a_dead_node_is_not_said_to_be_dropped(
    pool: FakePool, new_store: Make
) -> None:
    store = opened(pool, new_store)
    store.store("blocks", chain("a", 40, namespace=ONE), deadline_s=FOREVER)
    there = sum(one.nodes[0] is pool.nodes[1] for one in pool.kept.values())
    pool.kill(1)
    with pytest.raises(EngineError, match=f"{there} blocks that do not tell"):
        store.drop(ONE)
    assert store.report().removed == {"dropped": 40 - there}
    pool.give_up(1)
    assert store.drop(ONE) == 0


def test_a_full_pool_keeps_no_more_until_its_master_makes_room(new_store: Make) -> None:
    pool = FakePool(node_bytes=10 * 4096)
    store = opened(pool, new_store)
    stored = [one.status for one in store.store("blocks", chain("a", 12), deadline_s=FOREVER)]
    assert stored == ["stored"] * 10 + ["unavailable"] * 2
    assert "full" in store.store("blocks", [item(0)], deadline_s=FOREVER)[0].reason
    assert not store.report().problem
    pool.evict(3)
    assert store.report().removed == {"room": 3}
    (outcome,) = store.store("blocks", [item(0)], deadline_s=FOREVER)
    assert outcome.status == "stored"


def test_a_touch_tells_the_master_of_a_use(pool: FakePool, new_store: Make) -> None:
    store = opened(pool, new_store)
    store.store("blocks", [item(0), item(1)], deadline_s=FOREVER)
    store.close()
    for one in pool.kept.values():
        one.is_leased = False
    store.open([BLOCKS])
    store.touch("blocks", [key(0), key("nobody")])
    store.touch("blocks", [])
    store.close()
    assert [one.is_leased for one in pool.kept.values()] == [True, False]


def test_a_block_that_is_longer_or_shorter_than_its_group_is_removed(
    pool: FakePool, new_store: Make
) -> None:
    for block_bytes in (BLOCKS.block_bytes - 1, BLOCKS.block_bytes + 1):
        store = new_store(pool)
        store.open([replace(BLOCKS, block_bytes=block_bytes)])
        pool.kept.clear()
        pool.put(f"ours/blocks/{key(0).hex()}", bytes(4080))
        room = bytearray(block_bytes)
        (outcome,) = store.load("blocks", [key(0)], [room], deadline_s=FOREVER)
        assert outcome.status == "corrupt"
        assert not pool.kept


def test_a_purge_minds_neither_blocks_that_went_meanwhile_nor_damaged_ones(
    pool: FakePool, new_store: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(pool, new_store)
    store.store("blocks", [item(number, namespace=ONE) for number in range(3)], deadline_s=FOREVER)
    pool.kept[f"ours/blocks/{key(0).hex()}"].data[50] ^= 1
    gone = f"ours/blocks/{key('gone').hex()}"
    listed = [*pool.kept, gone]
    monkeypatch.setattr(store._admin, "names", lambda: listed)
    assert store.drop(ONE) == 2


def test_a_purge_of_everything_leaves_pools_whose_names_end_alike(
    pool: FakePool, new_store: Make
) -> None:
    other = new_store(pool, pool="not_ours")
    other.open([BLOCKS])
    other.store("blocks", [item(0)], deadline_s=FOREVER)
    store = opened(pool, new_store)
    store.store("blocks", [item(0)], deadline_s=FOREVER)
    assert store.drop() == 1
    assert list(pool.kept) == [f"not_ours/blocks/{key(0).hex()}"]


def test_what_another_removed_first_is_not_counted(
    pool: FakePool, new_store: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(pool, new_store)
    store.store("blocks", [item(0)], deadline_s=FOREVER)
    pool.kept[f"ours/blocks/{key(0).hex()}"].data[300] ^= 1
    monkeypatch.setattr(pool, "remove", lambda name, force: -704)
    assert read(store, 0) == "corrupt"
    assert store.report().removed == {}


def test_a_lane_holds_as_many_blocks_as_fit(pool: FakePool, new_store: Make) -> None:
    store = opened(pool, new_store, lane_bytes=3 * 4096)
    stored = store.store("blocks", chain("a", 8), deadline_s=FOREVER)
    assert {one.status for one in stored} == {"stored"}
    assert pool.calls.count("batch_put_from") == 3
