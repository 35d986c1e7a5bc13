"""Does the engine know which slots are its own?"""

from collections import Counter

import pytest
from deepinfer_core.stores.fetcher.layout import segment_layout
from deepinfer_core.stores.fetcher.slot_books import SlotBooks
from deepinfer_core.stores.traffic import Slot
from deepinfer_core.testing.store_groups import BLOCKS


class Bench:
    """Books of three slots that arrive, 0 to 2, and two that depart, 3 and 4."""

    def __init__(self) -> None:
        layout = segment_layout([BLOCKS], arriving_bytes=3 * 4096, departing_bytes=2 * 4096)
        self.generations: Counter[int] = Counter()
        self.books = SlotBooks(layout.groups, self.slot, self.renew)

    def slot(self, group: str, number: int) -> Slot:
        return Slot(group, number, self.generations[number], memoryview(b""))

    def renew(self, group: str, number: int) -> int:
        self.generations[number] += 1
        return self.generations[number]


def test_a_slot_that_came_twice_is_given_back_twice() -> None:
    bench = Bench()
    slot = bench.books.came("blocks", 1)
    bench.books.came("blocks", 1)
    assert bench.books.held() == {"blocks": {1: 2}}
    assert bench.books.give_back([slot]) == {"blocks": [1]}
    assert bench.books.give_back([slot]) == {"blocks": [1]}
    assert bench.books.held() == {"blocks": {}}
    with pytest.raises(ValueError, match="slot 1 of blocks"):
        bench.books.give_back([slot])


def test_a_slot_of_an_earlier_time_is_not_the_engines() -> None:
    bench = Bench()
    slot = bench.books.came("blocks", 1)
    bench.books.give_back([slot])
    bench.renew("blocks", 1)
    bench.books.came("blocks", 1)
    with pytest.raises(ValueError, match="generation 0"):
        bench.books.give_back([slot])


def test_empty_slots_go_to_the_engine_to_the_fetcher_and_back() -> None:
    bench = Bench()
    one, other = bench.books.lend("blocks", 5)
    assert bench.books.lend("blocks", 1) == []
    bench.books.hand_over(one)
    with pytest.raises(ValueError, match="not the engine's"):
        bench.books.hand_over(one)
    assert bench.books.give_back([other]) == {}
    assert (bench.books.writing, len(bench.books.lend("blocks", 5))) == (1, 1)
    bench.books.written("blocks", [one.number])
    (again,) = bench.books.lend("blocks", 5)
    assert (again.number, again.generation) == (one.number, one.generation + 1)


def test_what_a_dead_fetcher_was_to_write_is_empty_and_what_the_engine_fills_is_not() -> None:
    bench = Bench()
    one, other = bench.books.lend("blocks", 2)
    bench.books.hand_over(one)
    assert bench.books.lost() == 1
    assert bench.books.lost() == 0
    assert [slot.number for slot in bench.books.lend("blocks", 5)] == [one.number]
    bench.books.hand_over(other)
