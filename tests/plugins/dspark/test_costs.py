"""Costs that follow the steps: by size where there were some, by a factor where not."""

from collections.abc import Sequence

import pytest
from deepinfer_core.interfaces.draft_planner import StepTimes
from deepinfer_core.schedule.speculation_costs import CostCurve
from deepinfer_dspark.costs import PresentCosts
from deepinfer_dspark.measuring import MeasuredCosts

MEASURED = MeasuredCosts(
    steps=CostCurve(rows=(1, 2, 4, 8), milliseconds=(1.0, 2.0, 4.0, 8.0)),
    rounds=CostCurve(rows=(1, 4), milliseconds=(3.0, 5.0)),
)


def followed(*steps: StepTimes) -> PresentCosts:
    costs = PresentCosts(MEASURED)
    for step in steps:
        costs.add(step)
    return costs


def took(rows: int, step_ms: float, times: int = 1) -> list[StepTimes]:
    return [StepTimes(sequences=1, rows=rows, step_s=step_ms / 1e3, drafted=False)] * times


def curve(costs: PresentCosts) -> Sequence[float]:
    return [round(ms, 9) for ms in costs.of(1).curve.milliseconds]


def test_before_the_first_step_costs_are_those_measured() -> None:
    assert curve(followed()) == [1.0, 2.0, 4.0, 8.0]


def test_a_size_takes_what_its_last_steps_took_and_the_others_are_slower_by_the_factor() -> None:
    """3 rows are padded to 4."""
    assert curve(followed(*took(3, 6.0, 3))) == [1.5, 3.0, 6.0, 12.0]


def test_times_never_fall_with_rows() -> None:
    """Two rows took 2 ms, then four took 1; the factor behind is 1 / 4."""
    assert curve(followed(*took(2, 2.0, 3), *took(4, 1.0, 3))) == [1.0, 1.5, 1.5, 2.0]


def test_a_step_larger_than_all_that_were_measured_says_nothing() -> None:
    assert curve(followed(*took(9, 99.0, 20))) == [1.0, 2.0, 4.0, 8.0]


@pytest.mark.parametrize(("sequences", "round_ms"), [(1, 3.0), (2, 5.0), (4, 5.0), (5, 5.0)])
def test_a_round_takes_what_was_measured_for_the_size_that_it_is_padded_to(
    sequences: int, round_ms: float
) -> None:
    assert followed().of(sequences).drafter_ms == round_ms


def test_a_round_takes_what_the_last_ones_took() -> None:
    step = StepTimes(sequences=2, rows=2, step_s=0.02, drafted=True, round_s=0.009)
    assert followed(*[step] * 2).of(2).drafter_ms == 5.0
    assert followed(*[step] * 3).of(2).drafter_ms == pytest.approx(9.0)
    assert followed(*[step] * 3).of(1).drafter_ms == pytest.approx(5.4)


@pytest.mark.parametrize("tells", [True, False])
def test_a_round_is_no_part_of_what_a_step_takes(tells: bool) -> None:
    """9 ms in all, 3 of them for the round, as measured or as told."""
    step = StepTimes(
        sequences=1, rows=4, step_s=0.009, drafted=True, round_s=0.003 if tells else None
    )
    assert curve(followed(*[step] * 3)) == [1.5, 3.0, 6.0, 12.0]


def test_a_size_is_known_when_there_were_steps_of_it() -> None:
    costs = followed(*took(3, 5.0, 3))
    assert (costs.knows(4), costs.knows(5)) == (True, False)
