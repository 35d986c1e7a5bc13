"""What does a caller see while nodes and masters of Mooncake end, hang and come back?

Each bound on time is several times what is expected, and several times below what the client itself
would take: 0.5 to 1 s a call that meets a dead node, 4.3 s a call with a dead master, 60 s one that
meets a stopped node.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from deepinfer_cluster.store import MooncakeStore
from deepinfer_cluster.testing.real_pool import RealPool, until
from deepinfer_core.interfaces.kv_store import Outcome
from deepinfer_core.testing.contracts.kv_store_suite import block, chain, item, key
from deepinfer_core.testing.store_groups import BLOCKS

NAMES = [("text", depth) for depth in range(60)]
ANSWERED_S = 2.0
"""For calls that are refused, or served by what is well: they take milliseconds."""


@pytest.fixture
def opened() -> Iterator[Callable[..., MooncakeStore]]:
    """Opens stores in pools; closed at the end."""
    stores: list[MooncakeStore] = []

    def make(pool: RealPool, /, **options: Any) -> MooncakeStore:
        store = pool.store(retry_s=0.5, lane_bytes=1 << 20, **options)
        store.open([BLOCKS])
        stores.append(store)
        return store

    yield make
    for store in stores:
        store.close()


def soon(seconds: float = 60.0) -> float:
    return time.monotonic() + seconds


def load(store: MooncakeStore, deadline_s: float) -> list[Outcome]:
    """Load everything; what is a hit has the right bytes."""
    rooms = [bytearray(BLOCKS.block_bytes) for _ in NAMES]
    outcomes = store.load("blocks", [key(name) for name in NAMES], rooms, deadline_s=deadline_s)
    for outcome, room, name in zip(outcomes, rooms, NAMES, strict=True):
        assert outcome.status != "hit" or room == block(name)
    return outcomes


def statuses(outcomes: list[Outcome]) -> dict[str, int]:
    return dict(Counter(one.status for one in outcomes))


def store_all(store: MooncakeStore) -> dict[str, int]:
    return statuses(store.store("blocks", chain("text", len(NAMES)), deadline_s=soon()))


def test_a_killed_node_costs_its_blocks_and_hardly_any_time(
    new_pool: Callable[..., RealPool], opened: Callable[..., MooncakeStore]
) -> None:
    pool = new_pool()
    store = opened(pool)
    assert store_all(store) == {"stored": len(NAMES)}
    assert statuses(load(store, soon())) == {"hit": len(NAMES)}
    pool.kill(pool.nodes[0])
    load(store, soon())
    began_s = time.monotonic()
    for _ in range(10):
        found = statuses(load(store, soon()))
        assert found.keys() == {"hit", "unavailable"}
    assert time.monotonic() - began_s < ANSWERED_S
    there = found["unavailable"]
    until(lambda: statuses(load(store, soon())) == {"hit": len(NAMES) - there, "miss": there})
    until(lambda: not store.report().problem)
    assert store_all(store) == {"stored": there, "exists": len(NAMES) - there}
    assert statuses(load(store, soon())) == {"hit": len(NAMES)}


def test_writing_while_a_node_is_dead_leaves_no_hole_and_hardly_takes_time(
    new_pool: Callable[..., RealPool], opened: Callable[..., MooncakeStore]
) -> None:
    pool = new_pool()
    store = opened(pool)
    pool.kill(pool.nodes[0])
    stored = store_all(store)
    kept = stored.get("stored", 0)
    assert stored["unavailable"] == len(NAMES) - kept
    keys = [key(name) for name in NAMES]
    found = [one.status for one in store.find("blocks", keys, deadline_s=soon())]
    assert found == ["hit"] * kept + ["miss"] * (len(NAMES) - kept)
    began_s = time.monotonic()
    for number in range(10):
        store.store("blocks", [item(number)], deadline_s=soon())
    assert time.monotonic() - began_s < ANSWERED_S
    until(lambda: not store_all(store).keys() & {"unavailable"})
    assert statuses(load(store, soon())) == {"hit": len(NAMES)}


def test_a_stopped_node_costs_deadlines_until_all_lanes_wait_for_it(
    new_pool: Callable[..., RealPool], opened: Callable[..., MooncakeStore]
) -> None:
    pool = new_pool()
    store = opened(pool, lanes=2)
    store_all(store)
    pool.stop(pool.nodes[0])
    began_s = time.monotonic()
    for _ in range(2):
        assert statuses(load(store, soon(0.3))) == {"timeout": len(NAMES)}
    for _ in range(10):
        assert statuses(load(store, soon())) == {"unavailable": len(NAMES)}
    assert time.monotonic() - began_s < 2 * 0.3 + ANSWERED_S
    pool.resume(pool.nodes[0])
    until(lambda: statuses(load(store, soon(1.0))) == {"hit": len(NAMES)})


def test_a_killed_master_is_noticed_once_and_its_successor_by_itself(
    new_pool: Callable[..., RealPool], opened: Callable[..., MooncakeStore]
) -> None:
    pool = new_pool()
    store = opened(pool)
    store_all(store)
    pool.kill(pool.master)
    load(store, soon(0.3))
    until(lambda: bool(store.report().problem))
    began_s = time.monotonic()
    for _ in range(10):
        assert statuses(load(store, soon())) == {"unavailable": len(NAMES)}
        assert store_all(store) == {"unavailable": len(NAMES)}
    assert time.monotonic() - began_s < ANSWERED_S
    pool.start_master()
    until(lambda: statuses(load(store, soon())) == {"miss": len(NAMES)})
    until(lambda: not store_all(store).keys() & {"unavailable"})
    assert statuses(load(store, soon())) == {"hit": len(NAMES)}
    assert not store.report().problem


def test_a_store_waits_for_its_master_without_making_others_wait(
    new_pool: Callable[..., RealPool], opened: Callable[..., MooncakeStore]
) -> None:
    pool = new_pool(nodes=1)
    pool.kill(pool.master)
    store = opened(pool)
    began_s = time.monotonic()
    for _ in range(10):
        assert statuses(load(store, soon())) == {"unavailable": len(NAMES)}
    assert time.monotonic() - began_s < ANSWERED_S
    pool.start_master()
    until(lambda: not store_all(store).keys() & {"unavailable"})
    assert statuses(load(store, soon())) == {"hit": len(NAMES)}


def test_whatever_ends_no_byte_is_wrong(
    new_pool: Callable[..., RealPool], opened: Callable[..., MooncakeStore]
) -> None:
    pool = new_pool()
    readers = [opened(pool, pool="shared") for _ in range(2)]
    is_over, seen = threading.Event(), Counter[str]()
    problems: list[BaseException] = []

    def work(store: MooncakeStore) -> None:
        try:
            while not is_over.is_set():
                store.store("blocks", chain("text", len(NAMES)), deadline_s=soon(0.5))
                seen.update(statuses(load(store, soon(0.5))))
        except BaseException as error:  # noqa: BLE001 - told by the test
            problems.append(error)

    threads = [threading.Thread(target=work, args=(store,)) for store in readers]
    for thread in threads:
        thread.start()
    draw = random.Random("whatever ends")
    for _ in range(8):
        time.sleep(draw.uniform(0.2, 1.0))
        node = draw.choice(pool.nodes)
        if draw.random() < 0.3:
            pool.kill(pool.master)
            time.sleep(0.3)
            pool.start_master()
        else:
            pool.kill(node)
            pool.nodes.remove(node)
            pool.start_node()
    until(lambda: seen["hit"] > len(NAMES))
    is_over.set()
    for thread in threads:
        thread.join()
    assert not problems
    assert seen.keys() <= {"hit", "miss", "unavailable", "timeout"}
    assert seen["hit"]
    until(lambda: not store_all(readers[0]).keys() - {"stored", "exists"})
    until(lambda: statuses(load(readers[1], soon())) == {"hit": len(NAMES)})
