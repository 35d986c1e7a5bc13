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


def took(rows: int, step_ms: float, times: int = 1, sequences: int = 1) -> list[StepTimes]:
    return [StepTimes(sequences, rows, step_ms / 1e3, drafted=False)] * times


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


def test_a_size_takes_with_drafts_what_it_took_with_drafts() -> None:
    """Two rows of two sequences took 4 ms, two of one 6: that is with a draft."""
    costs = followed(*took(2, 4.0, 3, sequences=2), *took(2, 6.0, 3))
    assert costs.of(2).plain_ms(2) == 4.0
    assert costs.of(1).plain_ms(2) == 6.0


def test_a_size_that_was_run_in_one_kind_only_takes_what_it_took_there() -> None:
    assert followed(*took(2, 6.0, 3)).of(2).plain_ms(2) == 6.0
    assert followed(*took(2, 4.0, 3, sequences=2)).of(1).plain_ms(2) == 4.0


def without_drafts(*before: StepTimes) -> PresentCosts:
    """Both kinds were run side by side, and steps have no drafts from then on."""
    costs = followed(*before)
    costs.settle(is_drafting=False)
    return costs


def test_what_is_not_run_at_present_slows_down_as_what_is() -> None:
    """First both kinds take what was measured, then steps without drafts take twice as long."""
    costs = without_drafts(*took(4, 4.0, 9), *took(1, 1.0, 9))
    assert curve(costs) == [1.0, 2.0, 4.0, 8.0]
    for step in took(1, 2.0, 9):
        costs.add(step)
    assert curve(costs) == [2.0, 4.0, 8.0, 16.0]


def test_rounds_that_are_not_run_at_present_slow_down_as_steps_do() -> None:
    drafting = StepTimes(sequences=1, rows=4, step_s=0.007, drafted=True, round_s=0.003)
    costs = without_drafts(*[drafting] * 3, *took(1, 1.0, 9))
    for step in took(1, 2.0, 9):
        costs.add(step)
    assert costs.of(1).drafter_ms == 6.0


@pytest.mark.parametrize("settles", [False, True])
def test_what_slowed_down_meanwhile_is_where_the_new_times_begin(settles: bool) -> None:
    """Drafts are tried after all got twice as slow: that is what they take and took."""
    costs = without_drafts(*took(4, 4.0, 9), *took(1, 1.0, 9))
    for step in (*took(1, 2.0, 9), *took(4, 8.0, 3)):
        costs.add(step)
    if settles:
        costs.settle(is_drafting=True)
    assert curve(costs) == [2.0, 4.0, 8.0, 16.0]


def test_drift_is_counted_from_when_both_kinds_were_run_side_by_side() -> None:
    """Drafting became twice as slow; then plain steps are found to take 3 ms, and go on so."""
    costs = followed(*took(4, 4.0, 9), *took(4, 8.0, 9), *took(1, 3.0, 9))
    costs.settle(is_drafting=True)
    assert costs.of(1).plain_ms(1) == 3.0
    for step in took(4, 8.0, 9):
        costs.add(step)
    assert costs.of(1).plain_ms(1) == 3.0
    for step in took(4, 4.0, 9):
        costs.add(step)
    assert costs.of(1).plain_ms(1) == 1.5


def test_sizes_of_one_kind_follow_those_of_that_kind() -> None:
    """Plain steps take half as long again as measured, steps with drafts what was measured."""
    costs = followed(*took(1, 1.5, 3), *took(4, 4.0, 3))
    assert curve(costs) == [1.5, 2.0, 4.0, 8.0]


@pytest.mark.parametrize(("steps", "plain", "drafts"), [(2, False, False), (3, True, False)])
def test_a_kind_is_timed_once_a_size_of_it_is_known(steps: int, plain: bool, drafts: bool) -> None:
    costs = followed(*took(1, 1.0, steps))
    assert costs.are_timed(with_drafts=False) is plain
    assert costs.are_timed(with_drafts=True) is drafts
    assert followed(*took(4, 4.0, steps)).are_timed(with_drafts=True) is plain


def test_a_size_that_no_step_with_drafts_had_may_be_a_tenth_faster() -> None:
    costs = followed(*took(4, 4.0, 3))
    hopeful = costs.hopeful(costs.of(1), 1)
    assert [round(ms, 9) for ms in hopeful.curve.milliseconds] == [1.0, 1.8, 4.0, 7.2]


def test_what_the_curve_does_not_know_is_no_drift() -> None:
    """Steps with drafts take three times as long as measured, from the first one on."""
    costs = followed(*took(4, 12.0, 9), *took(1, 1.0, 3), *took(4, 12.0, 9))
    assert costs.of(1).plain_ms(1) == 1.0


@pytest.mark.parametrize(("disturbed", "hoped_ms"), [(2, 4.0), (7, 4.0), (8, 12.0)])
def test_a_size_that_few_steps_had_may_be_as_fast_as_the_fastest_of_them(
    disturbed: int, hoped_ms: float
) -> None:
    others = (*took(2, 2.0, 9), *took(8, 24.0, 9))
    costs = followed(*others, *took(4, 4.0), *took(4, 12.0, disturbed))
    assert costs.hopeful(costs.of(1), 1).curve.milliseconds[2] == hoped_ms
