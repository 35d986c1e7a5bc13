"""What does a caller see of nodes and masters that end, hang and come back?

A pool that behaves like Mooncake's counts the calls for which its users would have waited.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from deepinfer_cluster.store import MooncakeStore
from deepinfer_cluster.testing.fake_pool import FakePool
from deepinfer_core.errors import EngineError
from deepinfer_core.interfaces.kv_store import Outcome
from deepinfer_core.testing.contracts.kv_store_suite import block, chain, item, key
from deepinfer_core.testing.store_groups import BLOCKS, STATES

FOREVER = math.inf
NAMES = [("text", depth) for depth in range(40)]
Make = Callable[..., MooncakeStore]


@pytest.fixture
def pool() -> Iterator[FakePool]:
    pool = FakePool(nodes=4)
    yield pool
    for node in pool.nodes:
        node.resumed.set()


def filled(pool: FakePool, new_store: Make, **terms: object) -> MooncakeStore:
    store = new_store(pool, **terms)
    store.open([BLOCKS, STATES])
    stored = store.store("blocks", chain("text", len(NAMES)), deadline_s=FOREVER)
    assert {one.status for one in stored} == {"stored"}
    return store


def load(store: MooncakeStore, deadline_s: float = FOREVER) -> list[Outcome]:
    """Load everything; what is a hit has the right bytes."""
    rooms = [bytearray(BLOCKS.block_bytes) for _ in NAMES]
    keys = [key(name) for name in NAMES]
    outcomes = store.load("blocks", keys, rooms, deadline_s=deadline_s)
    for outcome, room, name in zip(outcomes, rooms, NAMES, strict=True):
        assert outcome.status != "hit" or room == block(name)
    return outcomes


def statuses(outcomes: list[Outcome]) -> dict[str, int]:
    return dict(Counter(one.status for one in outcomes))


def find(store: MooncakeStore) -> dict[str, int]:
    return statuses(store.find("blocks", [key(name) for name in NAMES], deadline_s=FOREVER))


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    end_s = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.001)


def on_node(pool: FakePool, number: int) -> int:
    return sum(one.nodes[0] is pool.nodes[number] for one in pool.kept.values())


def test_of_a_dead_node_only_the_first_caller_waits(pool: FakePool, new_store: Make) -> None:
    store, there = filled(pool, new_store), on_node(pool, 1)
    assert 0 < there < len(NAMES)
    pool.kill(1)
    for _ in range(5):
        outcomes = load(store)
        assert statuses(outcomes) == {"hit": len(NAMES) - there, "unavailable": there}
        assert find(store) == {"hit": len(NAMES) - there, "unavailable": there}
    assert pool.slow_calls == 1
    reasons = {one.reason for one in outcomes if one.status == "unavailable"}
    assert reasons == {store.report().problem} == {"a node of the pool does not answer"}


def test_when_the_master_gives_a_dead_node_up_its_blocks_are_misses_and_can_be_stored(
    pool: FakePool, new_store: Make
) -> None:
    store, there = filled(pool, new_store, retry_s=0.01), on_node(pool, 1)
    pool.kill(1)
    load(store)
    pool.give_up(1)
    until(lambda: statuses(load(store)) == {"hit": len(NAMES) - there, "miss": there})
    until(lambda: not find(store).keys() & {"unavailable"} and not store.report().problem)
    stored = statuses(store.store("blocks", chain("text", len(NAMES)), deadline_s=FOREVER))
    assert stored == {"stored": there, "exists": len(NAMES) - there}
    assert statuses(load(store)) == {"hit": len(NAMES)}


def test_a_node_that_answers_again_is_found_out_beside_all_calls(
    pool: FakePool, new_store: Make
) -> None:
    store = filled(pool, new_store, retry_s=0.01)
    pool.kill(1)
    until(lambda: bool(load(store)) and pool.slow_calls > 3)
    pool.nodes[1].is_alive = True
    until(lambda: statuses(load(store)) == {"hit": len(NAMES)})


def test_of_two_copies_on_one_node_only_what_is_read_from_there_is_out_of_reach(
    pool: FakePool, new_store: Make
) -> None:
    store = filled(pool, new_store, copies=2)
    there = on_node(pool, 1)
    assert there < sum(pool.nodes[1] in one.nodes for one in pool.kept.values())
    pool.kill(1)
    for _ in range(3):
        assert statuses(load(store)) == {"hit": len(NAMES) - there, "unavailable": there}
    assert pool.slow_calls == 1
    pool.give_up(1)
    assert find(store) == {"hit": len(NAMES)}


def test_without_a_master_only_the_master_is_tried(pool: FakePool, new_store: Make) -> None:
    store = filled(pool, new_store, retry_s=0.001)
    pool.kill(1)
    load(store)
    pool.is_up = False
    load(store)
    calls = Counter(pool.calls)
    until(lambda: bool(load(store)) and pool.calls.count("batch_is_exist") > 10)
    assert Counter(pool.calls)["batch_get_into"] <= calls["batch_get_into"] + 1


def test_writing_is_not_tried_with_what_is_left_of_the_last_time(
    pool: FakePool, new_store: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(pool, new_store, retry_s=0.001)
    pool.kill(1)
    store.store("blocks", chain("more", 40), deadline_s=FOREVER)
    monkeypatch.setattr(pool, "remove", lambda name, force: -706)
    tried = pool.calls.count("batch_put_from")
    until(lambda: bool(store.report().problem) and pool.calls.count("batch_put_from") > tried + 3)
    assert len({name.split("/")[1] for name in pool.kept} - {"blocks"}) > 2


def test_writing_stops_while_a_node_is_dead_and_leaves_no_hole(
    pool: FakePool, new_store: Make
) -> None:
    store = filled(pool, new_store)
    pool.kill(1)
    names = [("more", depth) for depth in range(40)]
    stored = [one.status for one in store.store("blocks", chain("more", 40), deadline_s=FOREVER)]
    kept = stored.count("stored")
    assert stored == ["stored"] * kept + ["unavailable"] * (40 - kept)
    assert 0 < kept < 40
    found = store.find("blocks", [key(name) for name in names], deadline_s=FOREVER)
    assert [one.status for one in found] == ["hit"] * kept + ["miss"] * (40 - kept)
    slow_calls = pool.slow_calls
    for _ in range(5):
        (outcome,) = store.store("blocks", [item("one")], deadline_s=FOREVER)
        assert outcome.status == "unavailable"
    assert pool.slow_calls == slow_calls


def test_writing_goes_on_when_all_nodes_can_be_written_to(pool: FakePool, new_store: Make) -> None:
    store = filled(pool, new_store, retry_s=0.01)
    pool.kill(1)
    store.store("blocks", chain("more", 40), deadline_s=FOREVER)
    pool.give_up(1)

    def is_stored() -> bool:
        outcomes = store.store("blocks", chain("more", 40), deadline_s=FOREVER)
        return statuses(outcomes).keys() <= {"stored", "exists"}

    until(is_stored)
    names = {name.rpartition("/")[0] for name in pool.kept}
    assert names == {"ours/blocks"}, "what was tried with is left"


def test_of_a_dead_master_only_the_first_caller_waits(pool: FakePool, new_store: Make) -> None:
    store = filled(pool, new_store)
    pool.is_up = False
    for _ in range(3):
        assert statuses(load(store)) == find(store) == {"unavailable": len(NAMES)}
        (outcome,) = store.store("blocks", [item("one")], deadline_s=FOREVER)
        assert outcome.status == "unavailable"
    assert pool.slow_calls == 1
    assert store.report().problem == "the pool's master does not answer"
    assert store.sweep(deadline_s=FOREVER) == 0
    for namespace in (None, bytes(32)):
        with pytest.raises(EngineError, match="does not answer"):
            store.drop(namespace)


def test_a_master_that_is_started_again_has_forgotten_everything(
    pool: FakePool, new_store: Make
) -> None:
    store = filled(pool, new_store, retry_s=0.01)
    pool.is_up = False
    load(store)
    pool.restart()
    until(lambda: statuses(load(store)) == {"miss": len(NAMES)})
    assert not store.report().problem
    store.store("blocks", chain("text", len(NAMES)), deadline_s=FOREVER)
    assert statuses(load(store)) == {"hit": len(NAMES)}


def test_a_store_opens_without_a_master_and_joins_when_there_is_one(
    pool: FakePool, new_store: Make
) -> None:
    pool.is_up = False
    store = new_store(pool, retry_s=0.01)
    store.open([BLOCKS])
    assert find(store) == {"unavailable": len(NAMES)}
    assert store.report().problem == "the pool's master does not answer"
    store.touch("blocks", [key(0)])
    pool.restart()
    until(lambda: find(store) == {"miss": len(NAMES)})
    assert pool.calls.count("register_buffer") == 1
    assert pool.slow_calls == 0


def test_a_call_that_hangs_is_late_and_the_next_one_is_served_elsewhere(
    pool: FakePool, new_store: Make
) -> None:
    store = filled(pool, new_store)
    pool.nodes[1].resumed.clear()
    assert statuses(load(store, time.monotonic() + 0.05)) == {"timeout": len(NAMES)}
    assert find(store) == {"hit": len(NAMES)}
    assert statuses(load(store, time.monotonic() + 0.05)) == {"timeout": len(NAMES)}
    outcomes = load(store)
    assert statuses(outcomes) == {"unavailable": len(NAMES)}
    assert "earlier calls" in outcomes[0].reason
    pool.nodes[1].resumed.set()
    until(lambda: statuses(load(store)) == {"hit": len(NAMES)})


def test_what_a_hung_call_finds_out_is_noted_behind_its_callers_back(
    pool: FakePool, new_store: Make
) -> None:
    store, there = filled(pool, new_store), on_node(pool, 1)
    pool.nodes[1].resumed.clear()
    load(store, time.monotonic() + 0.05)
    pool.kill(1)
    pool.nodes[1].resumed.set()
    until(lambda: bool(store.report().problem))
    slow_calls = pool.slow_calls
    assert statuses(load(store)) == {"hit": len(NAMES) - there, "unavailable": there}
    assert pool.slow_calls == slow_calls


def test_nothing_is_written_to_a_destination_behind_its_deadline(
    pool: FakePool, new_store: Make
) -> None:
    store = filled(pool, new_store)
    pool.nodes[1].resumed.clear()
    rooms = [bytearray(BLOCKS.block_bytes) for _ in NAMES]
    keys = [key(name) for name in NAMES]
    store.load("blocks", keys, rooms, deadline_s=time.monotonic() + 0.05)
    pool.nodes[1].resumed.set()
    until(lambda: statuses(load(store)) == {"hit": len(NAMES)})
    assert not any(map(any, rooms))


def test_a_store_that_is_closed_while_a_call_hangs_leaves_the_pool_when_it_is_back(
    pool: FakePool, new_store: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deepinfer_cluster.link._CLOSE_S", 0.0)
    store = filled(pool, new_store)
    pool.nodes[1].resumed.clear()
    load(store, time.monotonic() + 0.05)
    store.close()
    assert find(store) == {"unavailable": len(NAMES)}
    assert "close" not in pool.calls
    pool.nodes[1].resumed.set()
    until(lambda: pool.calls[-2:] == ["unregister_buffer", "close"])
