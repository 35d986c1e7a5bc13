"""Points in time: due ones come in order, ended requests are forgotten."""

from deepinfer_core.engine.deadlines import Deadlines


def test_what_is_due_comes_once_and_the_most_overdue_first() -> None:
    deadlines = Deadlines(lambda number: True)
    for at_s, number in ((3.0, 1), (1.0, 2), (2.0, 3)):
        deadlines.add(at_s, number)
    assert deadlines.due(0.5) == []
    assert deadlines.due(2.0) == [2, 3]
    assert deadlines.due(2.0) == []
    assert deadlines.due(9.0) == [1]


def test_what_ended_otherwise_is_not_due() -> None:
    deadlines = Deadlines(lambda number: number != 2)
    deadlines.add(1.0, 2)
    deadlines.add(1.0, 4)
    assert deadlines.due(5.0) == [4]


def test_entries_stay_in_proportion_to_what_is_in_work() -> None:
    deadlines = Deadlines(lambda number: number % 100 == 0)
    for number in range(10_000):
        deadlines.add(1e6 + number, number)
    assert len(deadlines) <= 2 * 100 + 64
    assert deadlines.due(1e9) == list(range(0, 10_000, 100))


def test_clearing_forgets_all() -> None:
    deadlines = Deadlines(lambda number: True)
    deadlines.add(1.0, 1)
    deadlines.clear()
    assert deadlines.due(2.0) == []
