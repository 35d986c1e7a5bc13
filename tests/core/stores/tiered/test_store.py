"""Is a block of several tiers found, served, kept and moved as one?"""

import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from deepinfer_core.errors import ConfigError, EngineError
from deepinfer_core.interfaces.kv_store import KvStore, Outcome, StoreItem
from deepinfer_core.stores.disk.index import AGE_STEP_S
from deepinfer_core.stores.disk.store import DiskStore
from deepinfer_core.stores.memory import MemoryStore
from deepinfer_core.stores.retention import Limits
from deepinfer_core.stores.tiered.store import TieredStore
from deepinfer_core.stores.tiered.tiers import Tier
from deepinfer_core.testing.contracts.kv_store_suite import block, chain, item, key
from deepinfer_core.testing.faulty_store import FaultyStore, Passing, flip_in_memory
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER, STATES

PAGE = 4096
DAY_S = 86_400.0
LIMITS = Limits(
    capacity_bytes=100 * PAGE,
    retention_s={"agent": 3 * DAY_S, "chat": 7 * DAY_S, "state": 180.0},
)


class Tiers:
    """A small tier before a large one, both in memory, with faults as a test sets them."""

    def __init__(self, *, fast_blocks: int = 100, pending_bytes: int = 1 << 20) -> None:
        self.clock = Passing()
        self.memories = [
            MemoryStore(replace(LIMITS, capacity_bytes=blocks * PAGE), clock=self.clock)
            for blocks in (fast_blocks, 400)
        ]
        self.fast, self.slow = (FaultyStore(one) for one in self.memories)
        self.store = TieredStore(
            [Tier(name="fast", store=self.fast), Tier(name="slow", store=self.slow)],
            pending_bytes=pending_bytes,
            close_s=0.2,
        )
        self.store.open([BLOCKS, STATES])

    def write(self, *items: StoreItem) -> list[str]:
        outcomes = self.store.store("blocks", items, deadline_s=FOREVER)
        return [one.status for one in outcomes]

    def read(self, name: object) -> str:
        buffer = bytearray(BLOCKS.block_bytes)
        (outcome,) = self.store.load("blocks", [key(name)], [buffer], deadline_s=FOREVER)
        assert outcome.status != "hit" or buffer == block(name)
        return outcome.status

    def kept(self, tier: KvStore, names: list[object]) -> list[bool]:
        outcomes = tier.find("blocks", [key(name) for name in names], deadline_s=FOREVER)
        return [one.status == "hit" for one in outcomes]

    def settle(self) -> None:
        assert self.store.settle(math.inf)


@pytest.fixture
def make() -> Iterator[Callable[..., Tiers]]:
    made: list[Tiers] = []

    def tiers(**options: int) -> Tiers:
        made.append(Tiers(**options))
        return made[-1]

    yield tiers
    for one in made:
        one.fast.gate.set()
        one.slow.gate.set()
        one.store.close()


@pytest.fixture
def tiers(make: Callable[..., Tiers]) -> Tiers:
    return make()


def test_what_is_stored_is_written_back_to_the_slower_tier(tiers: Tiers) -> None:
    assert tiers.write(*chain("text", 20)) == ["stored"] * 20
    tiers.settle()
    names: list[object] = [("text", depth) for depth in range(20)]
    assert tiers.kept(tiers.slow, names) == [True] * 20
    assert tiers.store.report().work["written_back"] == 20
    assert tiers.store.report().records == 20


def test_the_report_tells_which_tier_gave_a_block(make: Callable[..., Tiers]) -> None:
    """Moving blocks between tiers is not told as if somebody had asked for them."""
    tiers = make()
    tiers.write(*chain("text", 3))
    tiers.settle()
    tiers.fast.drop()
    assert tiers.read(("text", 0)) == "hit"
    tiers.settle()
    assert tiers.read(("text", 0)) == "hit"
    parts = tiers.store.report().parts
    assert list(parts) == ["tiers.0", "tiers.1"]
    assert parts["tiers.0"].outcomes == {"stored": 3, "miss": 1, "hit": 1}
    assert parts["tiers.1"].outcomes == {"hit": 1}


def test_each_tier_tells_how_full_it_is_and_above_which_mark_it_makes_room(
    make: Callable[..., Tiers],
) -> None:
    tiers = make(fast_blocks=10)
    tiers.write(item(0))
    tiers.settle()
    whole = tiers.store.report()
    fast, slow = whole.parts.values()
    assert (fast.capacity_bytes, fast.high_bytes) == (10 * PAGE, 9 * PAGE)
    assert (slow.capacity_bytes, slow.high_bytes) == (400 * PAGE, 360 * PAGE)
    assert fast.used_bytes == slow.used_bytes > 0
    assert whole.high_bytes == slow.high_bytes


def test_ages_are_those_of_the_last_tier(make: Callable[..., Tiers]) -> None:
    """What made room in a faster one is still kept."""
    tiers = make()
    tiers.write(item(0))
    tiers.settle()
    tiers.clock.now_s += 4 * DAY_S
    tiers.store.sweep(deadline_s=FOREVER)
    assert tiers.store.report().ages["expired"].total_s == 4 * DAY_S


def test_storing_waits_for_no_slower_tier(tiers: Tiers) -> None:
    tiers.slow.gate.clear()
    assert tiers.write(*chain("text", 20)) == ["stored"] * 20
    assert not tiers.store.settle(time.monotonic() + 0.05)
    tiers.slow.gate.set()
    tiers.settle()


def test_a_block_of_the_slower_tier_is_promoted(tiers: Tiers) -> None:
    tiers.slow.inner.store("blocks", [item("a", depth=3)], deadline_s=FOREVER)
    assert tiers.read("a") == "hit"
    tiers.settle()
    assert tiers.kept(tiers.fast, ["a"]) == [True]
    (facts,) = tiers.memories[0].describe("blocks", [key("a")], deadline_s=FOREVER)
    assert facts is not None
    assert facts.depth == 3
    tiers.slow.is_dead = True
    assert tiers.read("a") == "hit"


def test_no_read_waits_for_a_promotion(tiers: Tiers) -> None:
    tiers.slow.inner.store("blocks", [item("a")], deadline_s=FOREVER)
    tiers.fast.gated = ("store",)
    tiers.fast.gate.clear()
    assert tiers.read("a") == "hit"
    assert tiers.read("a") == "hit"
    assert not tiers.store.settle(time.monotonic() + 0.05)
    tiers.fast.gate.set()
    tiers.settle()
    assert tiers.kept(tiers.fast, ["a"]) == [True]


def test_a_damaged_block_comes_from_the_next_tier_and_goes_from_the_first(tiers: Tiers) -> None:
    tiers.write(item("a"))
    tiers.settle()
    flip_in_memory(tiers.memories[0], BLOCKS, key("a"), 2000)
    assert tiers.read("a") == "hit"
    assert tiers.memories[0].report().removed == {"damaged": 1}
    tiers.settle()
    assert tiers.kept(tiers.fast, ["a"]) == [True]


@pytest.mark.parametrize("which", ["fast", "slow"])
def test_a_tier_that_cannot_be_used_is_passed_over(tiers: Tiers, which: str) -> None:
    tiers.write(item("before"))
    tiers.settle()
    getattr(tiers, which).is_dead = True
    assert tiers.read("before") == "hit"
    assert tiers.read("nobody") == "miss"
    assert tiers.write(item("behind")) == ["stored"]
    tiers.settle()
    assert tiers.read("behind") == "hit"
    assert "dead" in tiers.store.report().problem


def test_with_all_tiers_gone_the_store_is_unavailable(tiers: Tiers) -> None:
    tiers.fast.is_dead = tiers.slow.is_dead = True
    assert tiers.read("a") == "unavailable"
    assert tiers.write(item("a")) == ["unavailable"]


def test_what_a_full_tier_refuses_goes_to_the_next(make: Callable[..., Tiers]) -> None:
    tiers = make(fast_blocks=8)
    statuses = tiers.write(*chain("text", 40))
    assert statuses == ["stored"] * 40
    names: list[object] = [("text", depth) for depth in range(40)]
    assert tiers.kept(tiers.fast, names).count(True) <= 8
    assert tiers.kept(tiers.slow, names) == [True] * 40
    assert all(tiers.read(name) == "hit" for name in names)


def test_the_tail_of_a_text_waits_for_its_beginning(make: Callable[..., Tiers]) -> None:
    """Or else the end of the process would leave an end without a beginning."""
    tiers = make(fast_blocks=8)
    tiers.slow.gate.clear()
    outcomes = tiers.store.store("blocks", chain("text", 40), deadline_s=time.monotonic() + 0.05)
    statuses = [one.status for one in outcomes]
    kept = statuses.count("stored")
    assert statuses == ["stored"] * kept + ["timeout"] * (40 - kept)
    assert 4 <= kept <= 8
    tiers.slow.gate.set()
    tiers.settle()
    names: list[object] = [("text", depth) for depth in range(40)]
    assert tiers.kept(tiers.slow, names) == [True] * kept + [False] * (40 - kept)


def test_what_the_slower_tier_refuses_takes_the_rest_of_its_chain_along(tiers: Tiers) -> None:
    """In this call and in those that go on with it; other chains, and a new try, are written."""
    text = chain("text", 12)
    tiers.write(*text[:4])
    tiers.settle()
    tiers.slow.is_dead = True
    tiers.write(*text[4:8])
    tiers.settle()
    tiers.slow.is_dead = False
    tiers.write(*text[8:])
    tiers.write(*chain("other", 3))
    tiers.settle()
    names: list[object] = [("text", depth) for depth in range(12)]
    assert tiers.kept(tiers.slow, names) == [True] * 4 + [False] * 8
    assert tiers.kept(tiers.slow, [("other", 2)]) == [True]
    assert tiers.store.report().work["not_written_back"] == 8
    assert tiers.write(*text) == ["exists"] * 12
    tiers.settle()
    assert tiers.kept(tiers.slow, names) == [True] * 12
    tiers.write(item(("text", 12), depth=12))
    tiers.settle()
    assert tiers.kept(tiers.slow, [("text", 12)]) == [True]


@pytest.mark.parametrize("fit", [0, 1, 2, 3, 5, 6])
def test_of_more_than_may_wait_the_end_of_the_newest_text_is_not_written(
    make: Callable[..., Tiers], fit: int
) -> None:
    """However many calls it came in; once they are moved, there is room again."""
    tiers = make(pending_bytes=max(fit * BLOCKS.block_bytes, 1))
    tiers.slow.gate.clear()
    text = chain("text", 6)
    assert tiers.write(*text[:2]) == ["stored"] * 2
    assert tiers.write(*text[2:]) == ["stored"] * 4
    tiers.slow.gate.set()
    tiers.settle()
    names: list[object] = [("text", depth) for depth in range(6)]
    assert tiers.kept(tiers.slow, names) == [True] * fit + [False] * (6 - fit)
    assert tiers.store.report().work.get("not_written_back", 0) == 6 - fit
    tiers.write(*chain("next", fit, namespace=bytes(32)))
    tiers.settle()
    assert tiers.kept(tiers.slow, [("next", depth) for depth in range(fit)]) == [True] * fit


def test_what_is_dropped_does_not_come_back_behind_it(tiers: Tiers) -> None:
    """Nor what was being written just then."""
    tiers.slow.gated = ("store",)
    tiers.slow.gate.clear()
    tiers.write(*chain("text", 20))
    tiers.write(*chain("other", 3, namespace=bytes(32)))
    while not tiers.slow.calls["store"]:
        time.sleep(0.001)
    with ThreadPoolExecutor(1) as pool:
        dropped = pool.submit(tiers.store.drop, item(0).namespace)
        opened = tiers.store._opened
        assert opened is not None
        while not (opened.tiers[1].mover._pauses or dropped.done()):
            time.sleep(0.001)
        tiers.slow.gate.set()
        dropped.result()
    tiers.settle()
    assert tiers.slow.inner.report().records == 3
    assert tiers.read(("text", 0)) == "miss"
    assert tiers.read(("other", 2)) == "hit"


def test_what_made_room_in_a_fast_tier_has_not_gone(make: Callable[..., Tiers]) -> None:
    tiers = make(fast_blocks=8)
    tiers.write(*chain("one", 6))
    tiers.settle()
    tiers.clock.now_s += 61.0
    tiers.write(*chain("other", 6))
    tiers.settle()
    assert tiers.memories[0].report().removed["room"] > 0
    report = tiers.store.report()
    assert report.removed == {}
    assert report.records == 12
    assert report.capacity_bytes == 400 * PAGE


def test_dropping_says_which_tier_did_not(tmp_path: Path) -> None:
    limits = replace(LIMITS, age_step_s=AGE_STEP_S)
    writer = DiskStore(tmp_path, limits, durable=False)
    writer.open([BLOCKS])
    writer.close()
    reading = DiskStore(tmp_path, limits, writes=False)
    store = TieredStore(
        [Tier(name="core.memory", store=MemoryStore(LIMITS)), Tier(name="core.disk", store=reading)]
    )
    store.open([BLOCKS])
    with pytest.raises(EngineError, match=r"tier 1 \(core\.disk\)"):
        store.drop()
    store.close()


def test_uses_of_a_fast_tier_keep_the_block_in_the_slow_one(tiers: Tiers) -> None:
    tiers.write(item("used"), item("unused"))
    tiers.settle()
    tiers.clock.now_s += 2 * DAY_S
    assert tiers.read("used") == "hit"
    assert tiers.store.sweep(deadline_s=FOREVER) == 0
    tiers.clock.now_s += 1.5 * DAY_S
    assert tiers.store.sweep(deadline_s=FOREVER) == 1
    assert tiers.kept(tiers.slow, ["used", "unused"]) == [True, False]


def test_closing_writes_what_waits(tmp_path: Path) -> None:
    store = TieredStore(
        [Tier(name="memory", store=MemoryStore(LIMITS)), Tier(name="disk", store=disk(tmp_path))]
    )
    store.open([BLOCKS])
    store.store("blocks", chain("text", 50), deadline_s=FOREVER)
    store.close()
    slow = disk(tmp_path)
    slow.open([BLOCKS])
    assert slow.report().records == 50
    slow.close()


def test_closing_leaves_a_hung_tier_to_itself(tiers: Tiers) -> None:
    """Or this test never ends."""
    tiers.slow.gate.clear()
    tiers.write(*chain("text", 5))
    tiers.store.close()
    assert not tiers.slow.gate.is_set()
    assert not tiers.store.groups
    assert not tiers.fast.groups


def test_a_store_that_raises_ends_no_mover_and_is_a_problem_of_its_tier(tiers: Tiers) -> None:
    real_find = tiers.slow.inner.find

    def broken(*args: object, **named: object) -> list[Outcome]:
        raise KeyError("deep")

    tiers.slow.inner.find = broken  # type: ignore[method-assign]
    tiers.write(item("a"))
    tiers.settle()
    assert "tier 1 (slow): KeyError" in tiers.store.report().problem
    tiers.slow.inner.find = real_find  # type: ignore[method-assign]
    tiers.write(item("b", namespace=bytes(32)))
    tiers.settle()
    assert tiers.kept(tiers.slow, ["b"]) == [True]


def disk(folder: Path) -> DiskStore:
    return DiskStore(folder, replace(LIMITS, age_step_s=AGE_STEP_S), durable=False)


def test_states_never_go_to_a_tier_that_outlives_the_process(tmp_path: Path) -> None:
    persistent = disk(tmp_path)
    store = TieredStore(
        [Tier(name="memory", store=MemoryStore(LIMITS)), Tier(name="disk", store=persistent)]
    )
    store.open([BLOCKS, STATES])
    outcomes = store.store("state", [item("s", STATES)], deadline_s=FOREVER)
    assert outcomes[0].status == "stored"
    assert store.settle(math.inf)
    assert set(persistent.groups) == {"blocks"}
    assert not store.capabilities.is_persistent
    store.close()


@pytest.mark.parametrize(
    ("groups", "named", "message"),
    [
        ([STATES], (), "no tier takes the group state"),
        ([BLOCKS, STATES], ("state",), r"tier 1 \(core\.disk\) takes state, and outlives"),
        ([BLOCKS], ("blocs",), r"tier 1 \(core\.disk\) takes blocs, found the groups blocks"),
        ([replace(BLOCKS, retention="none")], (), r"tier 0 \(core\.disk\): group blocks asks"),
    ],
)
def test_tiers_that_cannot_be_used_so_are_refused(
    tmp_path: Path, groups: list[object], named: tuple[str, ...], message: str
) -> None:
    """And all of them can be opened otherwise afterwards."""
    one, other = disk(tmp_path / "one"), disk(tmp_path / "other")
    store = TieredStore(
        [
            Tier(name="core.disk", store=one),
            Tier(name="core.disk", store=other, groups=named),
        ]
    )
    with pytest.raises(ConfigError, match=message):
        store.open(groups)  # type: ignore[arg-type]
    assert not store.groups
    for tier in (one, other):
        tier.open([BLOCKS])
        tier.close()


def test_a_tier_that_cannot_be_opened_closes_the_others(tmp_path: Path) -> None:
    one, other = disk(tmp_path), disk(tmp_path)
    store = TieredStore([Tier(name="one", store=one), Tier(name="other", store=other)])
    with pytest.raises(ConfigError, match=r"tier 1 \(other\): .*writes to"):
        store.open([BLOCKS])
    one.open([BLOCKS])
    one.close()


def test_a_tier_takes_only_the_groups_that_it_names() -> None:
    first, second = MemoryStore(LIMITS), MemoryStore(LIMITS)
    store = TieredStore(
        [
            Tier(name="first", store=first, groups=("state",)),
            Tier(name="second", store=second, groups=("blocks",)),
        ]
    )
    store.open([BLOCKS, STATES])
    store.store("blocks", [item("a")], deadline_s=FOREVER)
    store.store("state", [item("s", STATES)], deadline_s=FOREVER)
    assert store.settle(math.inf)
    assert (set(first.groups), set(second.groups)) == ({"state"}, {"blocks"})
    assert (first.report().records, second.report().records) == (1, 1)
    store.close()
