"""Do observations land in their buckets, and is a reading of one moment?"""

import threading

import pytest
from deepinfer_core.telemetry.board import Board, Distribution, Series
from deepinfer_core.telemetry.metric import Metric

COUNTED = Metric(name="things_total", kind="counter", help="Things.")
SORTED = Metric(
    name="sorts_total", kind="counter", help="Sorts.", labels=("sort",), values=("a", "b")
)
SPREAD = Metric(name="spread_seconds", kind="histogram", help="Spread.", bounds=(1.0, 2.0))
SELF = Metric(name="self_info", kind="gauge", help="Self.", labels=("name", "age"))
SMALL = (COUNTED, SORTED, SPREAD, SELF)


def read(board: Board) -> dict[tuple[str, ...], Series]:
    return {(series.metric.name, *series.labels): series for series in board.read()}


@pytest.mark.parametrize(
    ("value", "bucket"), [(0.0, 0), (0.999, 0), (1.0, 0), (1.001, 1), (2.0, 1), (2.001, 2), (9, 2)]
)
def test_a_value_lies_below_the_first_bound_that_is_not_smaller(value: float, bucket: int) -> None:
    spread = Distribution((1.0, 2.0))
    spread.observe(value)
    assert spread.counts == [int(place == bucket) for place in range(3)]


def test_a_value_that_was_seen_often_counts_as_often() -> None:
    spread = Distribution((1.0, 2.0))
    spread.observe(1.5, 4)
    spread.observe(3.0)
    assert (spread.counts, spread.count, spread.total) == ([0, 4, 1], 5, 9.0)


def test_every_series_exists_from_the_start() -> None:
    seen = read(Board({"self_info": (("x", "9"),)}, metrics=SMALL))
    assert {place: series.value for place, series in seen.items()} == {
        ("things_total",): 0,
        ("sorts_total", "a"): 0,
        ("sorts_total", "b"): 0,
        ("spread_seconds",): 0,
        ("self_info", "x", "9"): 1,
    }
    assert seen["spread_seconds",].counts == (0, 0, 0)


def test_a_label_value_that_was_not_announced_has_no_series() -> None:
    board = Board({}, metrics=SMALL)
    with pytest.raises(KeyError):
        board.number("sorts_total", "what a user wrote")
    with pytest.raises(KeyError):
        Board({"other_info": (("x",),)}, metrics=SMALL)


def test_a_reading_does_not_change_afterwards() -> None:
    board = Board({}, metrics=SMALL)
    before = read(board)
    board.number("things_total").value += 3
    board.distribution("spread_seconds").observe(1.5)
    assert before["things_total",].value == 0
    assert before["spread_seconds",].counts == (0, 0, 0)
    assert read(board)["things_total",].value == 3
    assert read(board)["spread_seconds",].counts == (0, 1, 0)


def test_levels_are_set_before_each_reading() -> None:
    levels = iter((4, 5))
    board = Board({}, lambda: _set(board, next(levels)), metrics=SMALL)
    assert [read(board)["things_total",].value for _ in range(2)] == [4, 5]


def _set(board: Board, value: int) -> None:
    board.number("things_total").value = value


def test_a_reading_waits_for_a_change_under_way() -> None:
    board = Board({}, metrics=SMALL)
    got: list[float] = []
    reader = threading.Thread(target=lambda: got.append(read(board)["things_total",].value))
    with board.lock:
        reader.start()
        reader.join(0.05)
        assert reader.is_alive()
        board.number("things_total").value = 7
    reader.join()
    assert got == [7]


def test_a_reading_that_fails_does_not_hold_up_the_next() -> None:
    def fail() -> None:
        raise OSError("gone")

    board = Board({}, fail, metrics=SMALL)
    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            board.read()
