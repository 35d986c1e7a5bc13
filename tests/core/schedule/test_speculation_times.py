"""Costs learned from steps, means of survival, and the choice of the mode."""

import pytest
from deepinfer_core.schedule.speculation import Total, choose_total
from deepinfer_core.schedule.speculation_costs import CostCurve, StepCosts
from deepinfer_core.schedule.speculation_mode import (
    DraftingMode,
    Lead,
    is_called,
    is_lost,
    lead,
    next_mode,
)
from deepinfer_core.schedule.speculation_prior import MeanSurvival
from deepinfer_core.schedule.speculation_times import Drift, RecentTimes, followed
from hypothesis import given
from hypothesis import strategies as st

CURVE = CostCurve(rows=(2, 4, 8), milliseconds=(1.0, 2.0, 4.0))


def recent_of(*measured: tuple[int, float]) -> RecentTimes:
    recent = RecentTimes(CURVE)
    for size, time_ms in measured:
        recent.add(size, time_ms)
    return recent


def times_of(*measured: tuple[int, float]) -> list[float]:
    return followed(CURVE, recent_of(*measured).known_ms)


@pytest.mark.parametrize(("count", "now_ms"), [(0, 2.0), (2, 2.0), (3, 3.0), (4, 3.0)])
def test_a_size_is_known_from_three_on(count: int, now_ms: float) -> None:
    """3 rows are padded to 4; the others follow by the same factor."""
    assert times_of(*[(3, 3.0)] * count) == [now_ms / 2, now_ms, 2 * now_ms]


def test_the_mean_of_the_middle_half_of_the_last_nine_counts() -> None:
    """Two at either end are left out: 1, 2 and 800, 900."""
    steps = [(4, 100.0)] * 9 + [(4, 1.0), (4, 900.0), (4, 800.0)] + [(4, 2.0)] * 3 + [(4, 3.0)] * 3
    assert times_of(*steps)[1] == (2 * 2 + 3 * 3) / 5


def test_a_machine_that_got_faster_makes_other_sizes_cheaper() -> None:
    assert times_of(*[(8, 2.0)] * 3) == [0.5, 1.0, 2.0]


def test_between_two_known_sizes_the_factor_goes_from_one_to_the_other() -> None:
    """1 at the first, 3 at the last, so 2 halfway."""
    assert times_of(*[(2, 1.0), (8, 12.0)] * 3) == [1.0, 4.0, 12.0]


@pytest.mark.parametrize(("size", "time_ms"), [(9, 900.0), (4, 0.0), (4, -1.0)])
def test_what_is_larger_than_the_curve_or_takes_no_time_says_nothing(
    size: int, time_ms: float
) -> None:
    assert times_of(*[(size, time_ms)] * 9) == [1.0, 2.0, 4.0]


def test_times_that_are_scaled_count_beside_new_ones() -> None:
    """Four of 3 become four of 6; of nine, five of 2 and four of 6, the middle five are counted."""
    recent = recent_of(*[(4, 3.0)] * 4)
    recent.scale(2.0)
    assert recent.known_ms == {1: 6.0}
    for _ in range(5):
        recent.add(4, 2.0)
    assert recent.known_ms == {1: (3 * 2 + 2 * 6) / 5}


def drift_of(*times_ms: float, place: int = 1) -> float:
    drift = Drift((2.0, 3.0, 5.0))
    for time_ms in times_ms:
        drift.add(place, time_ms)
    return drift.factor


@pytest.mark.parametrize(
    ("after", "factor"), [(0, 1.0), (2, 1.0), (3, 6 / 5), (5, 8 / 5), (7, 2.0), (20, 2.0)]
)
def test_a_drift_is_the_mean_of_the_middle_half_of_nine(after: int, factor: float) -> None:
    assert drift_of(*[6.0] * after) == factor


def test_each_size_drifts_against_its_own_time() -> None:
    drift = Drift((2.0, 3.0, 5.0))
    for place, time_ms in ((0, 4.0), (1, 6.0), (2, 10.0)) * 3:
        drift.add(place, time_ms)
    assert drift.factor == 2.0


@pytest.mark.parametrize(("place", "time_ms"), [(3, 9.0), (1, 0.0), (1, -1.0)])
def test_a_size_beyond_the_curve_or_no_time_says_nothing_of_drift(
    place: int, time_ms: float
) -> None:
    assert drift_of(*[time_ms] * 9, place=place) == 1.0


def test_nothing_known_is_certain_to_survive() -> None:
    assert MeanSurvival(3).rates == (1.0, 1.0, 1.0)


def test_estimates_are_averaged_over_blocks() -> None:
    mean = MeanSurvival(2)
    for _ in range(20_000):
        mean.add_rates((0.8, 0.4))
        mean.add_rates((0.4, 0.0))
    # 40,000 blocks leave exp(-80) of the start, and the newest counts 1 / 500 more: of the first
    # draft 0.2 / 1000 too much or too little, of the second as much of its own spread of 0.4.
    assert mean.rates == pytest.approx((0.6, 0.2), abs=8e-4)


COSTS = StepCosts(curve=CURVE, drafter_ms=1.0)


def lead_of(best: Total) -> Lead:
    return lead(best, COSTS, 2)


def run(mode: DraftingMode, best: Total, steps: int) -> list[bool]:
    """Whether the other mode is called for behind each step."""
    found = []
    for _ in range(steps):
        mode = next_mode(mode, lead_of(best))
        found.append(is_called(mode, COSTS))
    return found


def test_a_lead_is_what_either_way_loses_in_a_step() -> None:
    """2.5 tokens of two sequences take 2 ms, or 1.25 steps of 1 ms; a plain step's take 1.6 ms."""
    found = lead_of(Total(2, 2.5, 2.0))
    assert found == pytest.approx((0.625, 0.75, -0.6))


def test_a_lead_is_corrected_by_how_much_faster_drafting_was_than_estimated() -> None:
    corrected = lead(Total(2, 2.5, 2.0), COSTS, 2, correction=2.0)
    assert corrected == pytest.approx(lead_of(Total(2, 5.0, 2.0)))


def test_rows_of_prompts_make_a_plain_step_longer() -> None:
    """Four rows take 2 ms."""
    assert lead(Total(2, 2.5, 2.0), COSTS, 2, other_rows=2).ratio == pytest.approx(1.25)


def test_nobody_calls_for_the_other_way_while_this_one_is_faster() -> None:
    """7 tokens in 3 ms; without drafts 2 in 1 ms would need 3.5."""
    assert not any(run(DraftingMode(), Total(4, 7.0, 3.0), 100))


def test_steps_without_drafts_are_called_for_when_drafting_lost_four_draft_rounds() -> None:
    """2.5 tokens take 2 ms, or 1.25 ms without drafts: 0.75 lost a step, 4 is the limit."""
    assert run(DraftingMode(), Total(2, 2.5, 2.0), 7) == [False] * 5 + [True] * 2


def test_drafting_is_called_for_when_what_is_lost_without_is_worth_four_draft_rounds() -> None:
    """2 tokens take 1 ms, with drafts 3 * 2 / 10 = 0.6: 0.4 lost a step."""
    found = run(DraftingMode(is_drafting=False), Total(4, 10.0, 3.0), 12)
    assert found == [False] * 10 + [True] * 2


def test_sixteen_rounds_are_lost_before_a_mode_is_left_without_a_trial() -> None:
    """16 of 1 ms each, 0.75 lost a step."""
    mode, found = DraftingMode(), list[bool]()
    for _ in range(22):
        mode = next_mode(mode, lead_of(Total(2, 2.5, 2.0)))
        found.append(is_lost(mode, COSTS))
    assert found == [False] * 21 + [True]


def test_a_comparison_may_be_of_many_steps() -> None:
    """5 times 0.75 is lost after 5 steps, 6 times after 6."""
    found = [next_mode(DraftingMode(), lead_of(Total(2, 2.5, 2.0)), steps=n) for n in (5, 6)]
    assert [is_called(mode, COSTS) for mode in found] == [False, True]


def test_what_is_lost_in_one_step_may_be_won_back_in_the_next() -> None:
    mode = DraftingMode()
    for _ in range(100):
        mode = next_mode(mode, lead_of(Total(2, 2.5, 2.0)))
        mode = next_mode(mode, lead_of(Total(4, 8.0, 3.0)))
        assert not is_called(mode, COSTS)


def test_equal_speeds_change_nothing() -> None:
    for mode in (DraftingMode(), DraftingMode(is_drafting=False)):
        assert not any(run(mode, Total(2, 4.0, 2.0), 100))


def test_a_draft_round_that_was_never_timed_is_no_reason_to_stop() -> None:
    costs = StepCosts(curve=CURVE)
    best = choose_total([(0.0,), (0.0,)], costs)
    assert not is_called(next_mode(DraftingMode(), lead(best, costs, 2)), costs)


@given(
    st.lists(st.tuples(st.integers(2, 8), st.floats(0, 6), st.floats(0, 3)), max_size=30),
    st.booleans(),
)
def test_no_run_of_steps_that_calls_for_nothing_loses_more_than_four_draft_rounds(
    steps: list[tuple[int, float, float]], is_drafting: bool
) -> None:
    """Every run of steps, summed up by itself."""
    mode, stays = DraftingMode(is_drafting), list[float]()
    for rows, more_tokens, more_ms in steps:
        found = lead_of(Total(rows, 2 + more_tokens, COSTS.plain_ms(rows) + more_ms))
        stays.append(found.drafting_ms if is_drafting else found.plain_ms)
        mode = next_mode(mode, found)
        if is_called(mode, COSTS):
            mode = DraftingMode(is_drafting)
            stays.clear()
        # Sums of at most 30 numbers below 100, so at most 30 roundings of 100 * 2**-53 each.
        runs = (sum(stays[start:]) for start in range(len(stays)))
        assert max(runs, default=0.0) <= 4 * COSTS.drafter_ms + 1e-12
