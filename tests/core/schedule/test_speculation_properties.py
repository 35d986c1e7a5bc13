"""Row totals and their split on random sequences and curves."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from operator import mul

from deepinfer_core.interfaces.draft_planner import DraftView
from deepinfer_core.schedule.speculation import (
    Total,
    budget_rates,
    choose_total,
    split,
    survival,
)
from deepinfer_core.schedule.speculation_costs import CostCurve, StepCosts
from hypothesis import given
from hypothesis import strategies as st

DRAFTS = 5
confidence = st.integers(0, 8).map(lambda eighths: eighths / 8)
"""Products of five of them are exact, so that sums in any order agree."""
block = st.lists(confidence, max_size=DRAFTS).map(survival)


@st.composite
def views(draw: st.DrawFn) -> DraftView:
    return DraftView(
        draw(st.integers(0, DRAFTS)),
        draw(st.none() | block),
        draw(st.none() | block),
        draw(st.booleans()),
    )


@st.composite
def costs(draw: st.DrawFn) -> StepCosts:
    rows = sorted(draw(st.sets(st.integers(1, 40), min_size=1)))
    times = sorted(draw(st.integers(1, 64)) / 4 for _ in rows)
    return StepCosts(
        curve=CostCurve(rows=tuple(rows), milliseconds=tuple(times)),
        drafter_ms=draw(st.integers(0, 8)) / 4,
    )


batches = st.lists(views(), min_size=1, max_size=6)


def step_ms(costs: StepCosts, rows: int) -> Fraction:
    """What a measured step of so many rows takes, by definition; exact."""
    size = next(size for size in costs.curve.rows if size >= rows)
    base = Fraction(costs.curve.milliseconds[costs.curve.rows.index(size)])
    return base + Fraction(costs.drafter_ms)


def one_by_one(rates: Sequence[Sequence[float]], costs: StepCosts) -> tuple[int, Fraction]:
    """The published rule, literally: add pair after pair, keep the strictly best of all."""
    pairs = sorted((-rate, number) for number, each in enumerate(rates) for rate in each)
    rows, expected = len(rates), Fraction(len(rates))
    best = rows, expected / step_ms(costs, rows)
    for negative, _ in pairs:
        rows, expected = rows + 1, expected - Fraction(negative)
        if rows > costs.curve.rows[-1]:
            break
        speed = expected / step_ms(costs, rows)
        if speed > best[1]:
            best = rows, speed
    return best


def exact_speed(found: Total) -> Fraction:
    return Fraction(found.expected_tokens) / Fraction(found.step_ms)


@given(batches, costs())
def test_the_total_is_the_one_that_adding_pairs_one_by_one_finds(
    batch: list[DraftView], costs: StepCosts
) -> None:
    rates = [budget_rates(view) for view in batch]
    found = choose_total(rates, costs)
    if len(batch) <= costs.curve.rows[-1]:
        rows, speed = one_by_one(rates, costs)
        # Speeds are quotients in fp64: two that differ by less than a rounding are equal there.
        assert exact_speed(found) == speed or abs(exact_speed(found) / speed - 1) < 1e-15
        assert found.rows == rows or exact_speed(found) != speed
    else:
        assert len(batch) <= found.rows <= len(batch) + sum(view.drafts for view in batch)


@given(batches, st.data())
def test_every_total_can_be_split(batch: list[DraftView], data: st.DataObject) -> None:
    most = len(batch) + sum(view.drafts for view in batch)
    total = data.draw(st.integers(len(batch), most))
    rows = split(batch, total)
    assert sum(rows) == total
    assert all(1 <= q <= view.drafts + 1 for q, view in zip(rows, batch, strict=True))


@given(batches, st.data())
def test_no_draft_left_out_survives_better_than_one_verified(
    batch: list[DraftView], data: st.DataObject
) -> None:
    most = len(batch) + sum(view.drafts for view in batch)
    rows = split(batch, data.draw(st.integers(len(batch), most)))
    rates = [budget_rates(view._replace(is_current=False)) for view in batch]
    verified = [each[place] for each, q in zip(rates, rows, strict=True) for place in range(q - 1)]
    left = [rate for each, q in zip(rates, rows, strict=True) for rate in each[q - 1 :]]
    assert not verified or not left or min(verified) >= max(left)


@given(batches, costs(), st.integers(0, DRAFTS))
def test_expected_speed_is_never_below_that_of_a_fixed_number_of_drafts(
    batch: list[DraftView], costs: StepCosts, fixed: int
) -> None:
    """0 drafts are plain decoding, but for the draft round."""
    rates = [budget_rates(view) for view in batch]
    rows = len(batch) + sum(min(fixed, len(each)) for each in rates)
    if rows <= costs.curve.rows[-1]:
        tokens = len(batch) + sum(Fraction(rate) for each in rates for rate in each[:fixed])
        best = exact_speed(choose_total(rates, costs))
        # Both sides are quotients of exact sums, one of them rounded once.
        assert best >= tokens / step_ms(costs, rows) * (1 - Fraction(1, 2**52))


@given(st.lists(st.lists(confidence, min_size=DRAFTS, max_size=DRAFTS), min_size=1, max_size=5),
       st.lists(confidence, min_size=DRAFTS, max_size=DRAFTS), st.data())  # fmt: skip
def test_whether_a_draft_is_verified_does_not_depend_on_confidences_behind_it(
    confidences: list[list[float]], other: list[float], data: st.DataObject
) -> None:
    owner = data.draw(st.integers(0, len(confidences) - 1))
    kept = data.draw(st.integers(1, DRAFTS))
    total = data.draw(st.integers(len(confidences), len(confidences) * (1 + DRAFTS)))
    changed = list(confidences)
    changed[owner] = confidences[owner][:kept] + other[kept:]
    before, after = (
        split([DraftView(DRAFTS, survival(each)) for each in blocks], total)[owner]
        for blocks in (confidences, changed)
    )
    assert min(before, kept + 1) == min(after, kept + 1)


@given(st.lists(confidence, max_size=DRAFTS))
def test_survival_is_a_running_product(confidences: list[float]) -> None:
    assert survival(confidences) == tuple(accumulate(confidences, mul))
