"""Is it counted why blocks went, and for how long they had been unused?"""

from deepinfer_core.interfaces.store_report import AGE_BOUNDS_S
from deepinfer_core.stores.calls import Tally
from deepinfer_core.stores.removals import Removals


def removals(*pairs: tuple[str, float]) -> Removals:
    made = Removals()
    for reason, unused_s in pairs:
        made.add(reason, unused_s, "blocks", bytes(32))
    return made


def test_an_age_that_equals_a_bound_lies_below_it() -> None:
    ages = removals(("room", 60.0), ("room", 60.1), ("room", 1e9)).ages()["room"]
    assert ages.counts[:2] == (1, 1)
    assert (ages.counts[-1], sum(ages.counts)) == (1, 3)
    assert ages.total_s == 60.0 + 60.1 + 1e9
    assert len(ages.counts) == len(AGE_BOUNDS_S) + 1


def test_what_goes_whatever_its_age_has_none() -> None:
    made = removals(("dropped", 5.0), ("damaged", 5.0), ("discarded", 5.0), ("quota", 5.0))
    assert set(made.ages()) == {"quota"}
    assert made.blocks.total() == 4


def test_a_clock_that_was_set_back_makes_no_age_negative() -> None:
    assert removals(("expired", -7.0)).ages()["expired"].total_s == 0.0


def test_a_tally_adds_up_changes() -> None:
    tally = Tally()
    assert tally.remove_all(removals(("room", 10.0), ("expired", 90.0))) == 2
    assert tally.remove_all(removals(("room", 30.0))) == 1
    tally.remove("damaged")
    assert tally.removed() == {"room": 2, "expired": 1, "damaged": 1}
    assert tally.ages()["room"].total_s == 40.0
    assert sum(tally.ages()["room"].counts) == 2


def test_what_a_store_lets_go_by_itself_is_told_once_from_the_first_question_on() -> None:
    tally = Tally()
    tally.remove_all(removals(("room", 1.0)))
    assert tally.departed() == []
    tally.remove_all(removals(("room", 1.0), ("dropped", 1.0), ("expired", 1.0)))
    assert [one.reason for one in tally.departed()] == ["room", "expired"]
    assert tally.departed() == []
