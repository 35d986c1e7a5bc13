"""Is no block stored twice, and none behind a hole, whatever fails, dies or is dropped?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from deepinfer_core.interfaces.kv_store import KvStore, Outcome, StoreItem
from deepinfer_core.stores.calls import FULL
from deepinfer_core.stores.fetcher import refusals as refusals_module
from deepinfer_core.stores.fetcher.endpoint import Endpoint
from deepinfer_core.stores.fetcher.keeper import Keeper
from deepinfer_core.stores.fetcher.messages import KeepItem, Written
from deepinfer_core.stores.fetcher.refusals import Refusals
from deepinfer_core.stores.fetcher.write_queue import Batch, Waiting, WriteQueue
from deepinfer_core.stores.memory import MemoryStore
from deepinfer_core.stores.retention import Limits
from deepinfer_core.testing.contracts.kv_store_suite import block, key
from deepinfer_core.testing.store_groups import BLOCKS, STATES
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

TENANT = b"t" * 32
TEXTS, LENGTH = 3, 12


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    lines: list[dict[str, object]] = []
    logger = SimpleNamespace(warning=lambda event, **said: lines.append({"event": event, **said}))
    monkeypatch.setattr(refusals_module, "get_logger", lambda name: logger)
    return lines


def open_store() -> MemoryStore:
    store = MemoryStore(
        Limits(capacity_bytes=1 << 22, retention_s=dict.fromkeys(("agent", "state"), 1e9))
    )
    store.open([BLOCKS, STATES])
    return store


def keep_item(text: int, place: int) -> KeepItem:
    parent = key((text, place - 1)) if place else b""
    return KeepItem(100 * text + place, key((text, place)), TENANT, place, "", parent)


class Slots:
    """Memory in which every block lies that anybody will hand over."""

    def view(self, group: str, number: int) -> memoryview:
        one = BLOCKS if group == "blocks" else STATES
        return memoryview(block(divmod(number, 100), one))


class Calls:
    """The store, with a note of what it is asked for; it takes so many blocks and no more."""

    def __init__(self, inner: KvStore) -> None:
        self.inner, self.most, self.seen = inner, math.inf, []
        self.find_status = ""
        self.refusal = Outcome(status="unavailable")

    @property
    def capabilities(self) -> object:
        return self.inner.capabilities

    def find(self, group: str, keys: Sequence[bytes], *, deadline_s: float) -> list[Outcome]:
        self.seen.append(("find", len(keys)))
        if self.find_status:
            return [Outcome(status=self.find_status)] * len(keys)
        return self.inner.find(group, keys, deadline_s=deadline_s)

    def store(self, group: str, items: Sequence[StoreItem], *, deadline_s: float) -> list[Outcome]:
        self.seen.append(("store", len(items)))
        kept = items[: min(len(items), self.most)]
        self.most -= len(kept)
        found = self.inner.store(group, kept, deadline_s=deadline_s)
        return found + [self.refusal] * (len(items) - len(kept))


class Bench:
    """A keeper over a store in memory."""

    def __init__(self) -> None:
        self.calls, self.used = Calls(open_store()), []
        self.end = Endpoint(self.calls, threads=1, call_s=10.0)
        self.keeper = Keeper(
            self.end,
            lambda *use: self.used.append(use),
            {"blocks": BLOCKS, "state": STATES},
            Slots(),
        )

    def store(self, *blocks: tuple[int, int]) -> list[str]:
        waiting = tuple(Waiting(keep_item(*one), 0, 0.0) for one in blocks)
        return self.keeper.store(Batch("blocks", waiting))


def test_one_call_finds_what_is_there_and_only_the_rest_is_stored() -> None:
    bench = Bench()
    assert bench.store((0, 0), (0, 1)) == ["stored", "stored"]
    bench.calls.seen.clear()
    assert bench.store((0, 0), (0, 1), (0, 2)) == ["exists", "exists", "stored"]
    assert bench.calls.seen == [("find", 3), ("store", 1)]
    bench.calls.seen.clear()
    assert bench.store((0, 0), (0, 1)) == ["exists", "exists"]
    assert bench.calls.seen == [("find", 2)]


def test_a_block_whose_predecessor_is_not_there_is_not_stored_nor_what_follows() -> None:
    bench = Bench()
    assert bench.store((0, 1), (0, 2), (1, 0)) == ["orphan", "orphan", "stored"]
    assert bench.calls.seen == [("find", 4), ("store", 1)]
    # What is there already is left alone.
    assert bench.store((0, 0), (0, 1), (0, 2)) == ["stored"] * 3
    assert bench.store((0, 3)) == ["stored"]


def test_states_follow_on_nothing() -> None:
    bench = Bench()
    item = KeepItem(5, key((0, 5)), TENANT, 5, "", b"")
    assert bench.keeper.store(Batch("state", (Waiting(item, 0, 0.0),))) == ["stored"]


@pytest.mark.parametrize("status", ["timeout", "unavailable"])
def test_where_the_store_does_not_say_what_is_there_nothing_is_stored(status: str) -> None:
    bench = Bench()
    bench.calls.find_status = status
    assert bench.store((0, 0), (0, 1)) == [status] * 2
    assert bench.calls.seen == [("find", 2)]


def test_a_store_without_room_is_told_from_one_that_cannot(log: list[dict[str, object]]) -> None:
    bench = Bench()
    bench.calls.most, bench.calls.refusal = 1, FULL
    assert bench.store((0, 0), (0, 1)) == ["stored", "full"]
    bench.calls.refusal = Outcome(status="unavailable", reason="No space left on device")
    assert bench.store((1, 0)) == ["unavailable"]
    assert [(one["event"], one["outcome"], one["blocks"]) for one in log] == [
        ("store.refused", "full", 1)
    ]


def test_a_full_disk_is_in_the_log_once_a_minute_with_the_blocks_that_it_cost(
    log: list[dict[str, object]],
) -> None:
    now = [5.0]
    refusals = Refusals(lambda: now[0])
    for at, blocks in ((5.0, 3), (6.0, 4), (64.9, 5), (65.0, 6), (66.0, 7)):
        now[0] = at
        refusals.note("unavailable", "No space left on device", blocks)
    assert [(one["blocks"], one["reason"]) for one in log] == [
        (3, "No space left on device"),
        (15, "No space left on device"),
    ]


def test_why_nobody_knows_what_is_there_is_in_the_log(log: list[dict[str, object]]) -> None:
    bench = Bench()
    bench.calls.find_status = "unavailable"
    bench.store((0, 0), (0, 1))
    assert [(one["outcome"], one["blocks"]) for one in log] == [("unavailable", 2)]


class Writing(RuleBasedStateMachine):
    """An engine that hands texts over piece by piece, and all that goes wrong behind it."""

    @initialize()
    def begin(self) -> None:
        self.bench, self.now_s = Bench(), 0.0
        self.next = dict.fromkeys(range(TEXTS), 0)
        self.new_fetcher()

    @rule()
    def new_fetcher(self) -> None:
        """What waits is lost; the engine goes on with the texts that it has."""
        self.told: list[Written] = []
        self.queue = WriteQueue(age_s=10.0, batch_blocks=4, tell=self.told.append)
        self.handed: list[int] = []

    @rule(pieces=st.lists(st.tuples(st.integers(0, TEXTS - 1), st.integers(1, 4)), max_size=4))
    def hand_over(self, pieces: list[tuple[int, int]]) -> None:
        items = []
        for text, count in pieces:
            begin = self.next[text]
            self.next[text] = min(LENGTH, begin + count)
            items += [keep_item(text, place) for place in range(begin, self.next[text])]
        self.handed += [one.number for one in items]
        self.queue.put("blocks", items, self.now_s)

    @rule(text=st.integers(0, TEXTS - 1))
    def drop_the_rest_of_what_was_to_be_handed_over(self, text: int) -> None:
        self.next[text] = min(LENGTH, self.next[text] + 1)

    @rule(text=st.integers(0, TEXTS - 1), back=st.integers(0, LENGTH))
    def meet_a_text_again(self, text: int, back: int) -> None:
        self.next[text] = max(0, self.next[text] - back)

    @rule(most=st.sampled_from([0, 1, 2, 3, math.inf]))
    def write(self, most: float) -> None:
        """One call of the store, which takes so many blocks."""
        self.bench.calls.most = most
        batch = self.queue.take()
        if batch is not None:
            self.queue.done(batch, self.bench.keeper.store(batch))
        self.bench.end._kinds["store"].breaker.succeeded()

    @rule(seconds=st.sampled_from([1.0, 9.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.queue.expire(self.now_s)

    @invariant()
    def no_chain_has_a_hole(self) -> None:
        for text in range(TEXTS):
            keys = [key((text, place)) for place in range(LENGTH)]
            found = self.bench.calls.inner.find("blocks", keys, deadline_s=math.inf)
            there = [one.status == "hit" for one in found]
            assert there == sorted(there, reverse=True), there

    @invariant()
    def every_slot_comes_back_once(self) -> None:
        back = [number for one in self.told for number in one.numbers]
        waits = [one.item.number for _, one in self.queue._waiting]
        assert sorted(back + waits) == sorted(self.handed)


Writing.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestWriting = Writing.TestCase
