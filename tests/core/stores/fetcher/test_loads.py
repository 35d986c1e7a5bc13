"""Is a block loaded once for all who want it, and is its slot empty when none of them does?"""

import itertools

from deepinfer_core.stores.fetcher.loads import Loads
from hypothesis import given
from hypothesis import strategies as st


def loads(slots: int, held: dict[int, int] | None = None) -> Loads:
    counter = itertools.count(1)
    return Loads(slots, held or {}, lambda _: next(counter))


def test_a_block_on_its_way_is_joined() -> None:
    table = loads(2)
    first = table.begin(b"a", 1)
    assert table.join(b"a") is first
    assert table.join(b"b") is None
    assert table.empty_slots == 1


def test_a_slot_is_empty_when_all_have_given_it_back() -> None:
    table = loads(1)
    load = table.begin(b"a", 1)
    assert load is not None
    table.join(b"a")
    table.end(load, "hit")
    assert table.begin(b"b", 2) is None
    table.return_slot(0)
    assert table.join(b"a") is load  # still there for somebody, so for one more
    table.return_slot(0)
    assert table.empty_slots == 0
    table.return_slot(0)
    assert table.empty_slots == 1
    assert table.join(b"a") is None


def test_a_slot_that_is_written_into_is_not_given_out() -> None:
    table = loads(1)
    load = table.begin(b"a", 1)
    assert load is not None
    table.leave(load)
    assert table.empty_slots == 0
    table.end(load, "hit")
    assert table.empty_slots == 1


def test_a_block_that_did_not_come_leaves_its_slot_at_once() -> None:
    table = loads(1)
    load = table.begin(b"a", 1)
    assert load is not None
    table.join(b"a")
    table.end(load, "miss")
    assert table.empty_slots == 1
    assert table.join(b"a") is None
    table.leave(load)
    table.leave(load)
    assert table.empty_slots == 1


def test_slots_from_before_are_in_use_until_each_user_gave_them_back() -> None:
    table = loads(3, {1: 2})
    assert table.empty_slots == 2
    table.return_slot(1)
    assert table.empty_slots == 2
    table.return_slot(1)
    assert table.empty_slots == 3


def test_each_time_a_slot_has_another_generation() -> None:
    table = loads(1)
    seen = []
    for _ in range(3):
        load = table.begin(b"a", 1)
        assert load is not None
        seen.append(load.generation)
        table.end(load, "hit")
        table.return_slot(load.slot)
    assert seen == [1, 2, 3]


@given(st.lists(st.tuples(st.sampled_from("jber"), st.integers(0, 5)), max_size=60))
def test_no_slot_is_given_out_twice_or_forgotten(steps: list[tuple[str, int]]) -> None:
    table, users = loads(3), {}  # of each load that was begun: how many want it
    for what, number in steps:
        key = bytes([number])
        known = [one for one in users if one.key == key and users[one]]
        if what in "jb":
            load = table.join(key) or table.begin(key, 0)
            if load is not None:
                users[load] = users.get(load, 0) + 1
        elif what == "e" and known and not known[-1].outcome:
            table.end(known[-1], "hit" if number % 2 else "miss")
            if number % 2 == 0:
                users[known[-1]] = 0
        elif what == "r" and known:
            users[known[-1]] -= 1
            table.leave(known[-1])
        busy = {one.slot for one in users if users[one] or not one.outcome}
        assert len(busy) + table.empty_slots == 3
        assert len(busy) == sum(1 for one in users if users[one] or not one.outcome)
