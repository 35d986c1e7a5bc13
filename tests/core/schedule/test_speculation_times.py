"""Costs learned from steps, means of survival, and the choice of the mode."""

from statistics import median

import pytest
from deepinfer_core.schedule.speculation import Total, choose_total
from deepinfer_core.schedule.speculation_costs import CostCurve, StepCosts
from deepinfer_core.schedule.speculation_mode import DraftingMode, next_mode
from deepinfer_core.schedule.speculation_prior import MeanSurvival
from deepinfer_core.schedule.speculation_times import ContextSlope, RecentTimes
from hypothesis import given
from hypothesis import strategies as st

CURVE = CostCurve(rows=(2, 4, 8), milliseconds=(1.0, 2.0, 4.0))


def slope_of(steps: list[tuple[int, float]], window_steps: int = 5000) -> float:
    slope = ContextSlope(CURVE, window_steps)
    for rows, forward_ms in steps:
        slope.add(rows, forward_ms)
    return slope.slope_ms


@pytest.mark.parametrize(("count", "slope_ms"), [(0, 0.0), (9, 0.0), (10, 0.5), (11, 0.5)])
def test_a_size_counts_from_ten_steps_on(count: int, slope_ms: float) -> None:
    """3 rows are padded to 4, which was measured to take 2 ms: (4 - 2) / 4."""
    assert slope_of([(3, 4.0)] * count) == slope_ms


def test_the_slope_is_the_median_over_sizes_of_the_median_of_each() -> None:
    """0.5 and 0.25 and 1.0 a row; each size's own median is not moved by an outlier."""
    steps = [(2, 2.0), (4, 3.0), (8, 12.0)] * 10 + [(2, 900.0), (4, 900.0), (8, 900.0)]
    assert slope_of(steps) == 0.5


def test_a_slope_may_be_negative() -> None:
    assert slope_of([(8, 2.0)] * 10) == -0.25


def test_a_step_larger_than_the_curve_says_nothing() -> None:
    assert slope_of([(9, 900.0)] * 20) == 0.0


@given(st.lists(st.integers(0, 9).map(float), min_size=1, max_size=60), st.integers(10, 30))
def test_steps_that_left_the_window_do_not_count(times: list[float], window: int) -> None:
    newest = times[-window:]
    expected = median([(ms - 4.0) / 8 for ms in newest]) if len(newest) >= 10 else 0.0
    assert slope_of([(8, ms) for ms in times], window) == expected


@pytest.mark.parametrize(("count", "estimate_ms"), [(0, 0.0), (4, 0.0), (5, 3.0), (6, 3.0)])
def test_a_time_is_known_from_five_on(count: int, estimate_ms: float) -> None:
    times = RecentTimes()
    for _ in range(count):
        times.add(7, 3.0)
    assert times.estimate_ms(7) == times.estimate_ms(99) == estimate_ms


def test_the_last_nine_times_count() -> None:
    times = RecentTimes()
    for ms in (100.0,) * 9 + (1.0,) * 4 + (2.0,) * 5:
        times.add(7, ms)
    assert times.estimate_ms(7) == 2.0


def test_times_of_as_many_sequences_come_first() -> None:
    times = RecentTimes()
    for sequences, ms in [(1, 1.0)] * 5 + [(2, 8.0)] * 5:
        times.add(sequences, ms)
    assert (times.estimate_ms(1), times.estimate_ms(2)) == (1.0, 8.0)
    # The last 9 of all are four of 1 and five of 8.
    assert times.estimate_ms(3) == 8.0


def test_nothing_known_is_certain_to_survive() -> None:
    assert MeanSurvival(3).rates == (1.0, 1.0, 1.0)


def test_estimates_are_averaged_over_blocks() -> None:
    mean = MeanSurvival(2)
    for _ in range(20_000):
        mean.add_rates((0.8, 0.4))
        mean.add_rates((0.4, 0.0))
    # 40,000 blocks leave exp(-20) of the start, and the newest counts 1 / 2000 more.
    assert mean.rates == pytest.approx((0.6, 0.2), abs=2e-4)


def test_outcomes_are_averaged_over_blocks_in_which_a_draft_was_reached() -> None:
    """Half of the first drafts hold, and all second ones that are looked at behind them."""
    mean = MeanSurvival(3)
    for _ in range(20_000):
        mean.add_outcome(verified=2, accepted=2)
        mean.add_outcome(verified=1, accepted=0)
    assert mean.rates == pytest.approx((0.5, 0.5, 0.5), abs=2e-4)


def test_a_block_of_which_nothing_was_verified_says_nothing() -> None:
    mean = MeanSurvival(2)
    mean.add_outcome(verified=0, accepted=0)
    assert mean.rates == (1.0, 1.0)


COSTS = StepCosts(curve=CURVE, drafter_ms=1.0)


def run(mode: DraftingMode, best: Total, steps: int) -> list[bool]:
    found = []
    for _ in range(steps):
        mode = next_mode(mode, best, COSTS, 2)
        found.append(mode.is_drafting)
    return found


def test_drafting_goes_on_while_it_is_faster() -> None:
    """4 tokens in 3 ms; without drafts 2 in 1 ms would need 2."""
    assert all(run(DraftingMode(), Total(4, 7.0, 3.0), 100))


def test_drafting_ends_when_what_it_lost_is_worth_a_draft_round() -> None:
    """2.5 tokens take 2 ms, or 1.25 ms without drafts: 0.75 lost a step, 1 is the price."""
    assert run(DraftingMode(), Total(2, 2.5, 2.0), 3) == [True, False, False]


def test_drafting_is_taken_up_again_when_what_is_lost_without_is_worth_a_draft_round() -> None:
    """2 tokens take 1 ms, with drafts 3 * 2 / 10 = 0.6: 0.4 lost a step."""
    found = run(DraftingMode(is_drafting=False), Total(4, 10.0, 3.0), 4)
    assert found == [False, False, True, True]


def test_what_is_lost_in_one_step_may_be_won_back_in_the_next() -> None:
    mode = DraftingMode()
    for _ in range(100):
        mode = next_mode(mode, Total(2, 2.5, 2.0), COSTS, 2)
        mode = next_mode(mode, Total(4, 8.0, 3.0), COSTS, 2)
    assert mode.is_drafting


def test_equal_speeds_change_nothing() -> None:
    for mode in (DraftingMode(), DraftingMode(is_drafting=False)):
        assert set(run(mode, Total(2, 4.0, 2.0), 100)) == {mode.is_drafting}


def test_a_draft_round_that_was_never_timed_is_no_reason_to_stop() -> None:
    costs = StepCosts(curve=CURVE)
    best = choose_total([(0.0,), (0.0,)], costs)
    assert next_mode(DraftingMode(), best, costs, 2).is_drafting


@given(
    st.lists(st.tuples(st.integers(2, 8), st.floats(0, 6), st.floats(0, 3)), max_size=30),
    st.booleans(),
)
def test_no_run_of_steps_in_one_mode_loses_more_than_a_draft_round(
    steps: list[tuple[int, float, float]], is_drafting: bool
) -> None:
    """Every run that contains no change, summed up by itself."""
    mode, stays = DraftingMode(is_drafting), list[float]()
    for rows, more_tokens, more_ms in steps:
        best = Total(rows, 2 + more_tokens, COSTS.plain_ms(rows) + more_ms)
        plain_ms, tokens = COSTS.plain_ms(2), best.expected_tokens
        lost_ms = best.step_ms - plain_ms * tokens / 2
        stays.append(lost_ms if mode.is_drafting else -lost_ms * 2 / tokens)
        after = next_mode(mode, best, COSTS, 2)
        if after.is_drafting != mode.is_drafting:
            stays.clear()
        # Sums of at most 30 numbers below 100, so at most 30 roundings of 100 * 2**-53 each.
        runs = (sum(stays[start:]) for start in range(len(stays)))
        assert max(runs, default=0.0) <= COSTS.drafter_ms + 1e-12
        mode = after
