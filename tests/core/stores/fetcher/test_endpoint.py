"""Does a store that fails or hangs get nobody into trouble but itself?"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from deepinfer_core.interfaces.kv_store import Outcome
from deepinfer_core.stores.fetcher.endpoint import Endpoint

KEYS = [b"a" * 32, b"b" * 32]
FAR_S = 1e9


class Clock:
    """Time that a test sets."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Store:
    """Answers what a test says; notes deadlines."""

    def __init__(self) -> None:
        self.answer: Callable[[], Sequence[str]] = lambda: ["hit", "miss"]
        self.deadlines_s: list[float] = []

    def find(self, group: str, keys: Sequence[bytes], *, deadline_s: float) -> list[Outcome]:
        self.deadlines_s.append(deadline_s)
        return [Outcome(status=one, reason="why") for one in self.answer()]  # type: ignore[arg-type]

    def load(self, group: str, keys: Any, views: Any, *, deadline_s: float) -> list[Outcome]:
        return self.find(group, keys, deadline_s=deadline_s)

    def store(self, group: str, items: Any, *, deadline_s: float) -> list[Outcome]:
        return self.find(group, items, deadline_s=deadline_s)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def endpoint(store: Store, clock: Clock) -> Endpoint:
    return Endpoint(store, threads=2, call_s=10.0, clock=clock)  # type: ignore[arg-type]


def found(endpoint: Endpoint, by_s: float = FAR_S) -> list[str]:
    return [one.status for one in endpoint.find("blocks", KEYS, by_s)]


def test_a_call_has_its_own_deadline_or_that_of_every_call(
    endpoint: Endpoint, store: Store
) -> None:
    assert found(endpoint, 101.0) == found(endpoint) == ["hit", "miss"]
    assert store.deadlines_s == [101.0, 110.0]


def test_a_call_that_comes_too_late_is_not_made_and_not_held_against_the_store(
    endpoint: Endpoint, store: Store
) -> None:
    for _ in range(9):
        assert found(endpoint, 100.0) == ["timeout", "timeout"]
    assert store.deadlines_s == []
    assert endpoint.problem() == ""


def raising() -> Sequence[str]:
    raise SystemExit("foreign")


@pytest.mark.parametrize(
    "answer", [raising, lambda: ["hit"], lambda: ["timeout"] * 2, lambda: ["unavailable"] * 2]
)
def test_five_failures_open_the_circuit_of_that_kind_of_call(
    endpoint: Endpoint, store: Store, clock: Clock, answer: Callable[[], Sequence[str]]
) -> None:
    store.answer = answer
    for _ in range(5):
        assert set(found(endpoint)) <= {"timeout", "unavailable"}
    made = len(store.deadlines_s)
    assert found(endpoint) == ["unavailable", "unavailable"]
    assert len(store.deadlines_s) == made
    assert endpoint.problem().startswith("find: ")
    assert endpoint.would_let("load", "check", "store")
    assert not endpoint.would_let("load", "find")
    store.answer, clock.now_s = (lambda: ["miss", "miss"]), 102.0
    assert found(endpoint) == ["miss", "miss"]
    assert endpoint.problem() == ""


def test_a_call_that_was_answered_in_part_is_no_failure(endpoint: Endpoint, store: Store) -> None:
    store.answer = lambda: ["hit", "timeout"]
    for _ in range(9):
        assert found(endpoint) == ["hit", "timeout"]


def test_a_store_that_is_full_is_well(endpoint: Endpoint, store: Store) -> None:
    store.answer = lambda: ["unavailable"] * 2
    items: list[Any] = [None, None]
    for _ in range(9):
        endpoint.keep("blocks", items, FAR_S)
    assert endpoint.would_let("store")
    store.answer = raising
    for _ in range(5):
        endpoint.keep("blocks", items, FAR_S)
    assert not endpoint.would_let("store")


def test_where_all_threads_hang_nothing_is_asked_until_one_comes_back(
    endpoint: Endpoint, store: Store, clock: Clock
) -> None:
    inside, go_on = threading.Semaphore(0), threading.Event()

    def hang() -> Sequence[str]:
        inside.release()
        go_on.wait()
        return ["hit", "hit"]

    store.answer = hang
    threads = [threading.Thread(target=found, args=(endpoint, 101.0)) for _ in range(2)]
    for one in threads:
        one.start()
        inside.acquire()
    clock.now_s = 101.99
    endpoint.watch()
    assert endpoint.would_let("find", "load")
    clock.now_s = 102.0
    endpoint.watch()
    assert not endpoint.would_let("find", "load")
    assert endpoint.would_let("check", "store")
    assert "every thread hangs" in endpoint.problem()
    clock.now_s = 110.0  # time for a probe, and no thread for it
    assert not endpoint.would_let("find", "load")
    go_on.set()
    for one in threads:
        one.join()
    assert endpoint.would_let("find", "load")
    assert endpoint.problem().startswith("load: ")  # nobody has tried that
