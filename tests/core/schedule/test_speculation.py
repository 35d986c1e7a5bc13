"""Row totals and their split: the worked example, missing data, edges."""

import pytest
from deepinfer_core.interfaces.draft_planner import DraftView
from deepinfer_core.schedule.speculation import (
    budget_rates,
    choose_total,
    split,
    survival,
)
from deepinfer_core.schedule.speculation_costs import CostCurve, StepCosts

CONFIDENCES = ((0.9, 0.8, 0.7, 0.6, 0.5), (0.5,) * 5, (0.95, 0.9, 0.9, 0.8, 0.8))
RATES = tuple(survival(each) for each in CONFIDENCES)
CURVE = CostCurve(rows=(1, 2, 4, 8, 16, 18), milliseconds=(10.0, 10.2, 10.6, 11.4, 14.0, 14.5))
COSTS = StepCosts(curve=CURVE)
TABLE = {
    3: (3.0, 0.283019),
    4: (3.95, 0.372642),
    8: (7.1945, 0.631096),
    9: (7.8101, 0.557864),
    11: (8.8141, 0.629579),
    12: (9.3066, 0.664756),
    16: (10.1352, 0.723941),
    17: (10.1977, 0.703288),
    18: (10.2289, 0.705443),
}
"""By rows: expected tokens and tokens per millisecond, as published to four and six digits."""


def views(rates: tuple[tuple[float, ...], ...] = RATES) -> list[DraftView]:
    return [DraftView(len(each), each, each) for each in rates]


def test_survival_is_the_product_of_the_confidences_up_to_a_draft() -> None:
    assert RATES[1] == (0.5, 0.25, 0.125, 0.0625, 0.03125)
    assert RATES[2] == pytest.approx((0.95, 0.855, 0.7695, 0.6156, 0.49248), abs=1e-12)


@pytest.mark.parametrize("rows", TABLE)
def test_the_worked_example_has_the_published_speeds(rows: int) -> None:
    """A curve that ends at ``rows`` and is dear before it makes ``rows`` the choice."""
    tokens, speed = TABLE[rows]
    size = next(size for size in CURVE.rows if size >= rows)
    time_ms = CURVE.milliseconds[CURVE.rows.index(size)]
    costs = StepCosts(curve=CostCurve(rows=(rows,), milliseconds=(time_ms,)))
    found = choose_total(RATES, costs)
    assert found.rows == rows
    # Half a unit of the last digit that is published.
    assert found.expected_tokens == pytest.approx(tokens, abs=5e-5)
    assert found.tokens_per_ms == pytest.approx(speed, abs=5e-7)


def test_the_worked_example_looks_past_the_first_decrease() -> None:
    """Stopping at the first decrease, from 8 to 9 rows, would choose 8."""
    assert choose_total(RATES, COSTS).rows == 16
    assert split(views(), 16) == (6, 4, 6)


def test_a_price_a_row_and_a_sampler_leave_the_worked_example_as_it_is() -> None:
    """0.2 ms a row and 2 ms a step more."""
    points = zip(CURVE.rows, CURVE.milliseconds, strict=True)
    dearer = CostCurve(rows=CURVE.rows, milliseconds=tuple(ms + 0.2 * n + 2.0 for n, ms in points))
    assert choose_total(RATES, StepCosts(curve=dearer)).rows == 16


def test_a_draft_round_is_part_of_what_a_total_costs() -> None:
    """9.3 tokens in 14 ms are faster than 7.2 in 11.4 the more a round costs."""
    short = CostCurve(rows=(8, 12), milliseconds=(10.0, 14.0))
    assert choose_total(RATES, StepCosts(curve=short)).rows == 8
    found = choose_total(RATES, StepCosts(curve=short, drafter_ms=10.0))
    assert (found.rows, found.step_ms) == (12, 24.0)


def test_of_two_equal_speeds_the_smaller_total_is_chosen() -> None:
    costs = StepCosts(curve=CostCurve(rows=(1, 2), milliseconds=(1.0, 1.5)))
    assert choose_total([(0.5,)], costs).rows == 1


@pytest.mark.parametrize("other_rows", [0, 1, 5])
def test_rows_of_prompts_move_the_sequences_along_the_curve(other_rows: int) -> None:
    """The step is cheap up to 8 rows and then very dear."""
    costs = StepCosts(curve=CostCurve(rows=(8, 64), milliseconds=(1.0, 100.0)))
    assert choose_total(RATES, costs, other_rows=other_rows).rows == 8 - other_rows


def test_beyond_the_curve_the_last_price_of_a_row_holds() -> None:
    """From 8 to 16 rows one costs 0.5 ms; 20 + 1 rows are 5 beyond 16."""
    costs = StepCosts(curve=CostCurve(rows=(8, 16), milliseconds=(1.0, 5.0)))
    found = choose_total([(0.0,)], costs, other_rows=20)
    assert found.rows == 1
    assert found.step_ms == pytest.approx(5.0 + 5 * 0.5)


def test_beyond_the_curve_every_number_of_rows_is_looked_at() -> None:
    """At 0.25 ms a row and 10 tokens in 5 ms, a draft pays while its rate is above a half."""
    costs = StepCosts(curve=CostCurve(rows=(4, 8), milliseconds=(1.0, 2.0)))
    rates = [(0.9, 0.8, 0.001)] + [(0.0,)] * 9
    assert choose_total(rates, costs, other_rows=10).rows == 12


@pytest.mark.parametrize(("least", "rows"), [(0, 2), (1, 3), (2, 4), (3, 4)])
def test_as_many_drafts_are_verified_as_are_asked_for_if_there_are_as_many(
    least: int, rows: int
) -> None:
    """A row more doubles the time."""
    costs = StepCosts(curve=CostCurve(rows=(2, 3, 4, 5), milliseconds=(1.0, 2.0, 4.0, 8.0)))
    assert choose_total([(0.5,), (0.5, 0.0)], costs, least_drafts=least).rows == rows


def test_no_total_goes_beyond_the_largest_measured_step() -> None:
    costs = StepCosts(curve=CostCurve(rows=(4,), milliseconds=(1.0,)))
    assert choose_total(RATES, costs).rows == 4


def test_drafts_that_are_certain_to_fail_get_no_row() -> None:
    costs = StepCosts(curve=CostCurve(rows=(64,), milliseconds=(1.0,)))
    assert choose_total([(0.5, 0.0, 0.0), ()], costs).rows == 3


@pytest.mark.parametrize(
    ("total", "rows"), [(3, (1, 1, 1)), (9, (3, 1, 5)), (15, (6, 3, 6)), (18, (6, 6, 6))]
)
def test_a_total_goes_to_the_drafts_that_survive_best(total: int, rows: tuple[int, ...]) -> None:
    assert split(views(), total) == rows


def test_equal_drafts_go_to_the_earlier_sequence_and_then_the_earlier_draft() -> None:
    same = views(((0.5, 0.5), (0.5, 0.5)))
    assert [split(same, total) for total in range(2, 7)] == [
        (1, 1), (2, 1), (3, 1), (3, 2), (3, 3),
    ]  # fmt: skip


@pytest.mark.parametrize("total", [2, 19])
def test_a_total_that_nobody_can_take_is_refused(total: int) -> None:
    with pytest.raises(ValueError, match=f"asked for {total} rows, found room for 3 to 18"):
        split(views(), total)


def test_the_total_never_sees_the_block_that_it_is_for() -> None:
    """With the result of the last step known, ``newest`` is the block to be verified."""
    view = DraftView(2, newest=(0.9, 0.1), before=(0.5, 0.4), is_current=True)
    assert budget_rates(view) == (0.5, 0.4)


def test_while_a_step_is_in_flight_the_newest_known_block_is_old_enough() -> None:
    view = DraftView(2, newest=(0.9, 0.1), before=(0.5, 0.4), is_current=False)
    assert budget_rates(view) == (0.9, 0.1)


def test_a_draft_without_a_rate_counts_as_certain() -> None:
    assert budget_rates(DraftView(3)) == (1.0, 1.0, 1.0)


def test_a_sequence_without_drafts_has_no_rates() -> None:
    assert budget_rates(DraftView(0, (0.9,), (0.9,))) == ()


def test_a_draft_without_a_rate_takes_the_mean_of_others_if_there_is_one() -> None:
    assert budget_rates(DraftView(3), (0.7, 0.3)) == (0.7, 0.3, 0.3)


def test_a_shorter_block_is_continued_and_never_rises() -> None:
    assert budget_rates(DraftView(3, None, (0.2,)), (0.7, 0.3, 0.1)) == (0.2, 0.2, 0.1)


def test_a_longer_block_is_cut() -> None:
    assert budget_rates(DraftView(1, None, (0.9, 0.8))) == (0.9,)


NO_CURVES = [
    ((), ()), ((1, 1), (1.0, 1.0)), ((0,), (1.0,)), ((1,), (0.0,)), ((1, 2), (1.0,)),
    ((1, 2), (1.0, 0.9)), ((1,), (float("inf"),)), ((1, 2), (1.0, float("nan"))),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "times"), NO_CURVES)
def test_what_is_no_curve_is_refused(rows: tuple[int, ...], times: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="asked for a cost curve"):
        CostCurve(rows=rows, milliseconds=times)
