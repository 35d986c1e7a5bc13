"""Are gaps between two steps told from gaps within one?"""

import pytest
from deepinfer_core.bench.layers.idle import Activity, Trace, traced
from deepinfer_core.reference.device import CpuDevice

RESULTS = "Memcpy DtoH (Device -> Pinned)"


def trace(*activities: tuple[str, float, float]) -> Trace:
    return Trace(
        activities=tuple(
            Activity(name=n, start_us=start, end_us=end) for n, start, end in activities
        )
    )


TWO_STEPS = trace(
    ("first", 0, 10),
    (RESULTS, 10, 20),
    ("a", 25, 50),
    ("b", 60, 100),
    (RESULTS, 100, 120),
    ("a", 120, 200),
    (RESULTS, 210, 220),
)


def test_the_span_goes_from_the_end_of_the_first_step_to_the_end_of_the_last() -> None:
    assert (TWO_STEPS.span_us, TWO_STEPS.steps) == (200, 2)


def test_only_what_follows_results_is_a_gap_between_steps() -> None:
    assert TWO_STEPS.between_steps == pytest.approx(5 / 200)


def test_idle_counts_gaps_within_a_step_too() -> None:
    assert TWO_STEPS.idle == pytest.approx((5 + 10 + 10) / 200)


def test_activities_side_by_side_are_counted_once() -> None:
    both = trace((RESULTS, 0, 10), ("a", 10, 60), ("b", 20, 50), (RESULTS, 60, 110))
    assert both.idle == 0
    late = trace(("long", 0, 40), (RESULTS, 10, 20), ("a", 50, 60), (RESULTS, 60, 70))
    assert late.between_steps == pytest.approx(10 / 50)


def test_a_single_step_has_no_span() -> None:
    one = trace(("a", 0, 5), (RESULTS, 5, 6))
    assert (one.span_us, one.between_steps, one.idle, one.steps, one.step_us) == (0, 0, 0, 0, 0)
    assert trace().steps == 0


def test_the_top_list_is_by_time_and_of_as_many_steps_as_the_span_has() -> None:
    # Of 175: a 25 and 80, b 40, the results 20 and 10; the step before the span is left out.
    (first,) = TWO_STEPS.top(1)
    assert (first.name, first.share, first.calls) == ("a", pytest.approx(105 / 175), 2)
    assert [one.calls for one in TWO_STEPS.top(9)] == [2, 1, 2]


def test_times_are_of_one_step() -> None:
    assert TWO_STEPS.step_us == 100
    assert [one.step_us for one in TWO_STEPS.top(9)] == [52.5, 20, 15]


def test_a_cpu_has_no_record_of_its_own() -> None:
    assert traced(CpuDevice(), lambda: None) is None
