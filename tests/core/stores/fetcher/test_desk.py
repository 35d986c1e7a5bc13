"""Is what is wanted loaded from the front, told in order, shared, and ended in time?"""

import itertools
from typing import Any

from deepinfer_core.stores.fetcher.desk import Desk, FindState, LoadBlocks, MatchKeys, Work
from deepinfer_core.stores.fetcher.gallop import Match
from deepinfer_core.stores.fetcher.loads import Loads
from deepinfer_core.stores.fetcher.messages import Came, FromFetcher, Known, Over, Seek

MATCH_BY_S, FETCH_BY_S = 1.0, 10.0


class Bench:
    """A desk for groups of so many slots, batches of four blocks."""

    def __init__(self, slots: int = 100) -> None:
        counter = itertools.count(1)
        self.loads = {
            name: Loads(slots, {}, lambda _: next(counter)) for name in ("blocks", "state")
        }
        self.told: list[FromFetcher] = []
        self.used: list[tuple[str, list[bytes], str]] = []
        self.desk = Desk(self.loads, 4, self.told.append, lambda *one: self.used.append(one))
        self.tickets = itertools.count(1)

    def seek(self, count: int, *, found: int | None = None, first: int = 0, **more: Any) -> int:
        """Want keys from ``first`` on; with ``found`` also answer how many are there."""
        ticket = next(self.tickets)
        fields: dict[str, Any] = {
            "ticket": ticket,
            "keys": b"".join(keys(first, count)),
            "has": 0,
            "expected": 0,
            "group": "blocks",
            "state_group": None,
            "retention": "chat",
            "match_by_s": MATCH_BY_S,
            "fetch_by_s": FETCH_BY_S,
        }
        self.desk.seek(Seek(**(fields | more)))
        if found is not None:
            work = self.desk.blocks_work()
            assert isinstance(work, MatchKeys)
            self.desk.matched(work.prefix, Match(found, "", 3))
        return ticket

    def next_load(self) -> LoadBlocks:
        """The next blocks to load."""
        work = self.desk.blocks_work()
        assert isinstance(work, LoadBlocks)
        return work

    def done(self, work: Work | None, *outcomes: str) -> None:
        """What became of blocks; left out: all came."""
        assert isinstance(work, LoadBlocks)
        self.desk.loaded(work, outcomes or ["hit"] * len(work.loads))

    def of(self, ticket: int) -> list[object]:
        """What was told of a ticket: blocks found, places that came, the reason."""
        shown: list[object] = []
        for one in self.told:
            if getattr(one, "ticket", None) != ticket:
                continue
            if isinstance(one, Known):
                shown.append(one.blocks)
            elif isinstance(one, Came):
                places = list(range(one.first, one.first + len(one.slots)))
                shown.append(("state", *places) if one.is_state else places)
            elif isinstance(one, Over):
                shown.append(one.reason)
        return shown

    def give_back(self) -> None:
        """The engine has read all that it was told of."""
        for one in self.told:
            if isinstance(one, Came):
                self.desk.returned(one.group, [number for number, _ in one.slots])
        self.told[:] = [one for one in self.told if not isinstance(one, Came)]


def keys(first: int, count: int) -> list[bytes]:
    return [place.to_bytes(32, "little") for place in range(first, first + count)]


def placed(work: LoadBlocks) -> list[int]:
    return [int.from_bytes(one.key, "little") for one in work.loads]


def test_blocks_are_loaded_from_the_front_two_calls_at_a_time() -> None:
    bench = Bench()
    ticket = bench.seek(10, found=9)
    first, second = bench.next_load(), bench.next_load()
    assert (placed(first), placed(second)) == ([0, 1, 2, 3], [4, 5, 6, 7])
    assert bench.desk.blocks_work() is None
    bench.done(second)
    assert bench.of(ticket) == [9]
    third = bench.next_load()
    assert placed(third) == [8]
    bench.done(first)
    assert bench.of(ticket) == [9, [0, 1, 2, 3, 4, 5, 6, 7]]
    bench.done(third)
    assert bench.of(ticket) == [9, [0, 1, 2, 3, 4, 5, 6, 7], [8], "done"]
    assert bench.used == [("blocks", keys(0, 9), "chat")]
    assert len(bench.desk) == 0


def test_prefixes_take_turns() -> None:
    bench = Bench()
    bench.seek(8, found=8)
    bench.seek(8, found=8, first=100)
    assert [placed(bench.next_load())[0] for _ in range(4)] == [0, 100, 4, 104]


def test_a_block_that_is_missing_ends_the_prefix_and_frees_what_lies_behind() -> None:
    bench = Bench(slots=8)
    ticket = bench.seek(8, found=8)
    first, second = bench.next_load(), bench.next_load()
    bench.done(second)
    bench.done(first, "hit", "hit", "corrupt", "hit")
    assert bench.of(ticket) == [8, [0, 1], "corrupt"]
    assert bench.loads["blocks"].empty_slots == 6
    bench.give_back()
    assert bench.loads["blocks"].empty_slots == 8


def test_a_block_is_loaded_once_for_two_prefixes() -> None:
    bench = Bench()
    one, other = bench.seek(4, found=4), bench.seek(6, found=6)
    first, second = bench.next_load(), bench.next_load()
    assert (placed(first), placed(second)) == ([0, 1, 2, 3], [4, 5])
    bench.done(second)
    bench.done(first)
    assert bench.of(one) == [4, [0, 1, 2, 3], "done"]
    assert bench.of(other) == [6, [0, 1, 2, 3, 4, 5], "done"]
    assert bench.loads["blocks"].empty_slots == 94


def test_one_that_gives_up_does_not_take_the_block_from_the_other() -> None:
    bench = Bench()
    one, other = bench.seek(4, found=4), bench.seek(4, found=4)
    work = bench.next_load()
    assert bench.desk.blocks_work() is None
    bench.desk.give_up(one)
    bench.done(work)
    assert bench.of(one) == [4]
    assert bench.of(other) == [4, [0, 1, 2, 3], "done"]
    bench.give_back()
    assert bench.loads["blocks"].empty_slots == 100


def test_one_that_waits_for_another_that_is_late_asks_itself() -> None:
    bench = Bench()
    bench.seek(4, found=4, fetch_by_s=3.0)
    other = bench.seek(4, found=4)
    work = bench.next_load()
    assert bench.desk.blocks_work() is None
    bench.desk.expire(3.0)
    bench.done(work, "hit", "timeout", "timeout", "timeout")
    again = bench.next_load()
    assert placed(again) == [1, 2, 3]
    bench.done(again, "hit", "hit", "timeout")
    assert bench.of(other) == [4, [0], [1, 2], "timeout"]


def test_a_prefix_waits_for_slots_and_is_full_if_none_comes() -> None:
    bench = Bench(slots=4)
    one, other = bench.seek(4, found=4), bench.seek(4, found=4, first=100)
    bench.done(bench.next_load())
    assert bench.desk.blocks_work() is None
    bench.give_back()
    assert placed(bench.next_load()) == [100, 101, 102, 103]
    third = bench.seek(4, found=4, first=200)
    assert bench.desk.blocks_work() is None
    bench.desk.expire(FETCH_BY_S)
    assert (bench.of(one)[-1], bench.of(other)[-1]) == ("done", "timeout")
    assert bench.of(third) == [4, "full"]


def test_what_is_late_ends_where_it_is() -> None:
    bench = Bench(slots=8)
    matching, loading = bench.seek(4), bench.seek(8, first=10)
    for _ in range(2):
        work = bench.desk.blocks_work()
        assert isinstance(work, MatchKeys)
        if work.prefix.ticket == loading:
            bench.desk.matched(work.prefix, Match(8, "", 1))
    first, second = bench.next_load(), bench.next_load()
    bench.done(first)
    assert bench.desk.next_deadline_s() == MATCH_BY_S + 0.02
    assert not bench.desk.expire(MATCH_BY_S)
    assert bench.desk.expire(MATCH_BY_S + 0.02)
    assert bench.of(matching) == ["timeout"]
    assert bench.desk.next_deadline_s() == FETCH_BY_S
    assert bench.desk.expire(FETCH_BY_S)
    assert bench.of(loading) == [8, [0, 1, 2, 3], "timeout"]
    assert bench.loads["blocks"].empty_slots == 0  # the store may still write into four of them
    bench.done(second)
    bench.give_back()
    assert bench.loads["blocks"].empty_slots == 8


def test_a_matching_that_was_late_in_part_is_used() -> None:
    bench = Bench()
    ticket = bench.seek(8)
    work = bench.desk.blocks_work()
    assert isinstance(work, MatchKeys)
    bench.desk.matched(work.prefix, Match(2, "timeout", 5))
    bench.done(bench.next_load())
    assert bench.of(ticket) == [2, [0, 1], "timeout"]


def test_a_state_comes_behind_the_blocks_that_came() -> None:
    bench = Bench()
    ticket = bench.seek(6, found=6, state_group="state")
    bench.done(bench.next_load(), "hit", "hit", "hit", "miss")
    prefix = state_work(bench).prefix
    assert (prefix.told, bench.of(ticket)) == (3, [6, [0, 1, 2]])
    load = bench.desk.begin_state(prefix, 2)
    assert load is not None
    assert bench.desk.state_loaded(prefix, load, 2, "hit")
    assert bench.of(ticket) == [6, [0, 1, 2], ("state", 2), "miss"]


def state_work(bench: Bench) -> FindState:
    work = bench.desk.state_work()
    assert isinstance(work, FindState)
    return work


def test_a_state_that_is_not_whole_gives_way_to_one_before_it() -> None:
    bench = Bench()
    ticket = bench.seek(4, found=4, state_group="state")
    bench.done(bench.next_load())
    prefix = state_work(bench).prefix
    assert prefix.told == 4
    load = bench.desk.begin_state(prefix, 3)
    assert load is not None
    assert not bench.desk.state_loaded(prefix, load, 3, "corrupt")
    load = bench.desk.begin_state(prefix, 1)
    assert load is not None
    assert load.key == keys(1, 1)[0]
    assert bench.desk.state_loaded(prefix, load, 1, "hit")
    assert bench.of(ticket) == [4, [0, 1, 2, 3], ("state", 1), "done"]


def test_a_state_that_nobody_wants_any_more_leaves_its_slot() -> None:
    bench = Bench()
    ticket = bench.seek(4, found=4, state_group="state")
    bench.done(bench.next_load())
    prefix = state_work(bench).prefix
    load = bench.desk.begin_state(prefix, 3)
    assert load is not None
    bench.desk.give_up(ticket)
    assert bench.desk.state_loaded(prefix, load, 3, "hit")
    assert bench.loads["state"].empty_slots == 100
    assert bench.of(ticket) == [4, [0, 1, 2, 3]]


def test_without_any_block_no_state_is_looked_for() -> None:
    bench = Bench()
    ticket = bench.seek(4, found=0, state_group="state")
    assert bench.of(ticket) == [0, "miss"]
    ticket = bench.seek(4, found=0, state_group="state", has=2)
    bench.desk.no_state(state_work(bench).prefix)
    assert bench.of(ticket) == [0, "miss"]
