"""Measured curves: which sizes, which of the runs, and no falling stretch."""

from itertools import pairwise

import pytest
from deepinfer_dspark.measuring import measure, rising, round_sizes, row_sizes
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("most", "sizes"),
    [
        (1, (1,)),
        (6, (1, 2, 4, 6)),
        (8, (1, 2, 4, 8)),
        (9, (1, 2, 4, 8, 9)),
        (40, (1, 2, 4, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40)),
        (41, (1, 2, 4, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 41)),
    ],
)
def test_small_steps_are_measured_closely(most: int, sizes: tuple[int, ...]) -> None:
    assert row_sizes(most) == sizes


def test_large_steps_are_measured_a_quarter_apart() -> None:
    sizes = row_sizes(576)
    assert len(sizes) == 29
    assert sizes[-1] == 576
    assert all(after <= before * 5 / 4 for before, after in pairwise(sizes) if before >= 8)


@pytest.mark.parametrize(
    ("most", "sizes"),
    [(1, (1,)), (2, (1, 2)), (3, (1, 2, 3)), (5, (1, 2, 4, 5)), (64, (1, 2, 4, 8, 16, 32, 64))],
)
def test_rounds_are_measured_at_the_sizes_that_they_are_padded_to(
    most: int, sizes: tuple[int, ...]
) -> None:
    assert round_sizes(most) == sizes


class Timer:
    """Seven steps of each size, of known times."""

    def __init__(self, *runs: list[float]) -> None:
        self.runs = dict(enumerate(runs, start=1))

    def step(self, rows: int) -> float:
        return self.runs[rows].pop(0)

    def round(self, sequences: int) -> float:
        return 0.5 * sequences


def test_sizes_are_run_twice_through_and_the_fastest_run_behind_a_warm_one_counts() -> None:
    order: list[int] = []

    class Noting(Timer):
        def step(self, rows: int) -> float:
            order.append(rows)
            return super().step(rows)

    timer = Noting([0.1, 0.2, 5.0, 4.0, 0.3, 6.0, 9.0], [0.1, 0.2, 9.0, 9.0, 0.3, 9.0, 8.0])
    found = measure(timer, (1, 2), (1,))
    assert found.steps.rows == (1, 2)
    assert found.steps.milliseconds == pytest.approx((4000.0, 8000.0))
    assert found.rounds.milliseconds == pytest.approx((500.0,))
    assert order == [1] * 4 + [2] * 4 + [1] * 3 + [2] * 3


def test_a_larger_pass_that_looks_faster_takes_as_long_as_the_smaller_one() -> None:
    found = measure(Timer([3.0] * 7, [1.0] * 7), (1, 2), (1,))
    assert found.steps.milliseconds == pytest.approx((2000.0, 2000.0))


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ((), ()),
        ((1.0, 2.0, 3.0), (1.0, 2.0, 3.0)),
        ((1.0, 3.0, 2.0, 4.0), (1.0, 2.5, 2.5, 4.0)),
        ((3.0, 2.0, 1.0), (2.0, 2.0, 2.0)),
        ((2.0, 3.0, 1.0), (2.0, 2.0, 2.0)),
    ],
)
def test_a_stretch_that_falls_gets_its_mean(
    times: tuple[float, ...], expected: tuple[float, ...]
) -> None:
    assert rising(times) == expected


@given(st.lists(st.integers(1, 9).map(float), max_size=12))
def test_what_is_made_to_rise_rises_and_keeps_its_sum(times: list[float]) -> None:
    found = rising(times)
    assert all(a <= b for a, b in pairwise(found))
    # Twelve numbers up to 9.
    assert sum(found) == pytest.approx(sum(times), abs=1e-12)


@given(st.lists(st.integers(1, 9).map(float), max_size=12))
def test_what_rises_already_is_left_alone(times: list[float]) -> None:
    assert rising(sorted(times)) == tuple(sorted(times))
