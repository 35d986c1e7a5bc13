"""Do snapshots keep to their budget, and does a pinned one stay?"""

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


def test_a_reserved_slot_is_found_by_nobody_and_cannot_be_pinned() -> None:
    shelf = Shelf()
    slot = shelf.reserve()
    assert slot is not None
    assert list(shelf) == [slot]
    with pytest.raises(EngineError, match=f"state slot {slot} holds no published snapshot"):
        shelf.pin(slot)
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


def test_pinned_and_reserved_slots_do_not_make_room() -> None:
    shelf = Shelf()
    shelf.pin(shelf.put(b"a"))
    shelf.reserve()
    assert shelf.reserve() is None
    assert b"a" in shelf
    assert shelf.evicted == 0
    shelf.check()


def test_a_snapshot_is_kept_until_all_its_pins_are_off() -> None:
    shelf = Shelf(1)
    slot = shelf.put(b"a")
    shelf.pin(slot)
    shelf.pin(slot)
    shelf.unpin(slot)
    assert shelf.reserve() is None
    shelf.unpin(slot)
    shelf.check()
    assert shelf.reserve() is not None
    assert b"a" not in shelf


def test_a_snapshot_whose_pin_comes_off_counts_as_used() -> None:
    shelf = Shelf()
    slot = shelf.put(b"a")
    shelf.pin(slot)
    shelf.put(b"b")
    shelf.unpin(slot)
    shelf.reserve()
    assert b"a" in shelf
    assert b"b" not in shelf


def test_taking_off_a_pin_that_is_not_there_is_an_error() -> None:
    shelf = Shelf()
    slot = shelf.put(b"a")
    with pytest.raises(EngineError, match=f"state slot {slot} is not pinned"):
        shelf.unpin(slot)
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
@pytest.mark.parametrize("state", ["free", "published", "pinned", "forgotten"])
def test_only_reserved_slots_can_be_published_or_dropped(call: str, state: str) -> None:
    shelf = Shelf()
    slot = shelf.put(b"a")
    if state == "free":
        shelf.forget(b"a")
    elif state != "published":
        shelf.pin(slot)
    if state == "forgotten":
        shelf.forget(b"a")
    with pytest.raises(EngineError, match=f"state slot {slot} is not reserved"):
        shelf.drop(slot) if call == "drop" else shelf.publish(b"b", slot)
    shelf.check()


def test_a_forgotten_snapshot_that_is_pinned_is_freed_when_unpinned() -> None:
    shelf = Shelf()
    slot = shelf.put(b"a")
    shelf.pin(slot)
    shelf.forget(b"a")
    assert b"a" not in shelf
    assert list(shelf) == [slot]
    shelf.check()
    again = shelf.put(b"a")
    assert again != slot
    shelf.unpin(slot)
    assert list(shelf) == [again]
    assert shelf.find(b"a") == again
    shelf.check()


def test_clearing_keeps_reserved_and_pinned_slots_and_forgets_all_keys() -> None:
    shelf = Shelf(4)
    shelf.put(b"a")
    pinned = shelf.put(b"b")
    shelf.pin(pinned)
    reserved = shelf.reserve()
    shelf.clear()
    assert set(shelf) == {pinned, reserved}
    assert b"a" not in shelf
    assert b"b" not in shelf
    shelf.check()


def test_without_a_free_slot_in_the_pool_a_snapshot_makes_room_within_the_budget() -> None:
    shelf = Shelf(2, slots=3)
    slot = shelf.put(b"a")
    shelf.pool.take(2)
    assert shelf.reserve() == slot
    assert shelf.reserve() is None
