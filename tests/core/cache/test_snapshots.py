"""Do snapshots keep to their budget, and which one makes room?"""

import pytest
from deepinfer_core.cache.pool import PagePool
from deepinfer_core.cache.snapshots import SnapshotShelf
from deepinfer_core.errors import EngineError


class Shelf(SnapshotShelf):
    """A shelf with its pool, and how many snapshots fit."""

    def __init__(self, maximum: int = 2, slots: int = 4) -> None:
        self.pool = PagePool(slots + 1, "state slot")
        super().__init__(self.pool, maximum)

    def put(self, key: bytes) -> int:
        slot = self.reserve()
        assert slot is not None
        self.publish(key, slot)
        return slot

    def check(self) -> None:
        self.check_integrity()
        self.pool.check_integrity([list(self)])


def test_a_published_snapshot_is_found_under_its_key_alone() -> None:
    shelf = Shelf()
    slot = shelf.put(b"a")
    assert shelf.find(b"a") == slot
    assert b"a" in shelf
    assert shelf.find(b"b") is None
    assert b"b" not in shelf
    shelf.check()


def test_a_slot_is_reserved_until_it_is_published() -> None:
    shelf = Shelf()
    slot = shelf.reserve()
    assert slot is not None
    assert list(shelf) == [slot]
    assert shelf.reserved == {slot}
    shelf.check()
    shelf.publish(b"a", slot)
    assert list(shelf) == [slot]
    assert shelf.reserved == frozenset()
    shelf.check()


@pytest.mark.parametrize("maximum", [0, 1, 2])
def test_no_more_slots_are_taken_than_the_budget_has(maximum: int) -> None:
    shelf = Shelf(maximum)
    assert [shelf.reserve() is not None for _ in range(3)] == [n < maximum for n in range(3)]
    assert shelf.pool.free_count == 4 - maximum
    assert shelf.evicted == 0
    shelf.check()


def test_the_snapshot_used_longest_ago_makes_room() -> None:
    shelf = Shelf()
    first = shelf.put(b"a")
    shelf.put(b"b")
    assert shelf.find(b"a") == first
    shelf.reserve()
    assert b"a" in shelf
    assert b"b" not in shelf
    assert shelf.evicted == 1
    shelf.check()


def test_looking_whether_a_snapshot_exists_does_not_use_it() -> None:
    shelf = Shelf()
    shelf.put(b"a")
    shelf.put(b"b")
    assert b"a" in shelf
    shelf.reserve()
    assert b"a" not in shelf


def test_reserved_slots_do_not_make_room() -> None:
    shelf = Shelf()
    shelf.put(b"a")
    kept = shelf.reserve()
    assert shelf.reserve() is not None
    assert b"a" not in shelf
    assert shelf.reserve() is None
    assert kept in shelf.reserved
    assert shelf.evicted == 1
    shelf.check()


def test_a_second_snapshot_of_one_key_is_given_back_and_the_first_counts_as_used() -> None:
    shelf = Shelf(3)
    first = shelf.put(b"a")
    shelf.put(b"b")
    shelf.put(b"a")
    assert shelf.pool.free_count == 2
    shelf.check()
    shelf.put(b"c")
    shelf.reserve()
    assert b"b" not in shelf
    assert shelf.find(b"a") == first


def test_a_slot_reserved_in_vain_is_given_back() -> None:
    shelf = Shelf(1)
    slot = shelf.reserve()
    assert slot is not None
    shelf.drop(slot)
    assert shelf.pool.free_count == 4
    assert shelf.reserve() is not None
    shelf.check()


@pytest.mark.parametrize("call", ["drop", "publish"])
@pytest.mark.parametrize("state", ["free", "published"])
def test_only_reserved_slots_can_be_published_or_dropped(call: str, state: str) -> None:
    shelf = Shelf()
    slot = shelf.put(b"a")
    if state == "free":
        shelf.forget(b"a")
    with pytest.raises(EngineError, match=f"state slot {slot} is not reserved"):
        shelf.drop(slot) if call == "drop" else shelf.publish(b"b", slot)
    shelf.check()


def test_a_forgotten_snapshot_gives_its_slot_back() -> None:
    shelf = Shelf()
    shelf.put(b"a")
    shelf.forget(b"b")
    assert b"a" in shelf
    shelf.forget(b"a")
    assert b"a" not in shelf
    assert shelf.pool.free_count == 4
    assert shelf.evicted == 0
    shelf.check()


@pytest.mark.parametrize("wrong", ["two keys of a slot", "published and reserved", "over budget"])
def test_books_that_contradict_each_other_are_an_error(wrong: str) -> None:
    shelf = Shelf()
    slot = shelf.put(b"a")
    shelf.check_integrity()
    if wrong == "two keys of a slot":
        shelf._slot_of[b"b"] = slot
    elif wrong == "published and reserved":
        shelf._reserved.add(slot)
    else:
        shelf._reserved |= {slot + 1, slot + 2}
    with pytest.raises(EngineError, match="books of the state snapshots"):
        shelf.check_integrity()


def test_clearing_keeps_reserved_slots_and_forgets_all_keys() -> None:
    shelf = Shelf(4)
    shelf.put(b"a")
    shelf.put(b"b")
    reserved = shelf.reserve()
    shelf.clear()
    assert list(shelf) == [reserved]
    assert shelf.reserved == {reserved}
    assert b"a" not in shelf
    assert b"b" not in shelf
    shelf.check()


def test_without_a_free_slot_in_the_pool_a_snapshot_makes_room_within_the_budget() -> None:
    shelf = Shelf(2, slots=3)
    slot = shelf.put(b"a")
    shelf.pool.take(2)
    assert shelf.reserve() == slot
    assert shelf.reserve() is None
