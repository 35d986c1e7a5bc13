"""Does a choice change only for a reason, and bits only where nobody loses by it?"""

import math
from typing import Any

import pytest
from deepinfer_core.bench.kernel_choices import Decision, decide
from deepinfer_core.bench.kernel_timing import Sample
from deepinfer_core.bench.kernel_tuning import LoadTimes
from deepinfer_core.interfaces.operators.tunings import SpecChoices, TunedKernel

from tests.core.bench.fake_tunings import FakeTunings, kernel, load

NOW, OTHER = kernel("now"), kernel("other")
DIVIDED, LARGE = kernel("divided", bits=2), kernel("large", bits=2)
TUNINGS = FakeTunings(NOW, OTHER, DIVIDED, LARGE)
SERVES = [(1, 8), (9, 64), (65, 0)]
ROWS = [8, 64, 4096]


def size(index: int, times: dict[TunedKernel, Any], peer_s: float = math.nan) -> LoadTimes:
    """Times in seconds, with their spread if it is not 0."""
    samples = {
        one: Sample(seconds=given[0], spread_s=given[1])
        if isinstance(given, tuple)
        else Sample(seconds=given, spread_s=0.0)
        for one, given in times.items()
    }
    where = load(ROWS[index], SERVES[index])
    return LoadTimes(load=where, picked=NOW, samples=samples, problems={}, peer_s=peer_s)


def decided(
    *times: dict[TunedKernel, Any], is_whole: bool = True
) -> tuple[list[Decision], SpecChoices | None]:
    return decide(TUNINGS, [size(n, one) for n, one in enumerate(times)], is_whole=is_whole)


def names(decisions: list[Decision]) -> list[str]:
    return [one.choice.tuning.name for one in decisions]


@pytest.mark.parametrize(
    ("now", "other", "name"),
    [
        (10.0, 9.0, "other"),
        (10.0, 10.0, "now"),
        ((10.0, 1.5), 9.0, "now"),
        (10.0, (9.0, 1.5), "now"),
        ((10.0, 0.5), (9.0, 0.5), "other"),
    ],
)
def test_a_choice_changes_if_it_is_faster_by_more_than_the_spread(
    now: Any, other: Any, name: str
) -> None:
    decisions, _ = decided({NOW: now, OTHER: other})
    assert names(decisions) == [name]
    assert decisions[0].is_change is (name == "other")


def test_the_gain_is_the_share_of_its_time_that_a_size_loses() -> None:
    (changed, kept), _ = decided({NOW: 10.0, OTHER: 7.5}, {NOW: 10.0, OTHER: 11.0})
    assert (changed.gain, kept.gain) == (0.25, 0.0)


def test_the_choices_cover_the_rows_of_a_spec() -> None:
    _, choices = decided({NOW: 10.0, OTHER: 7.5}, {NOW: 10.0}, {NOW: (3.0, 0.25)})
    assert choices is not None
    assert (choices.operator, choices.spec) == ("transform_double", "spec")
    assert [one.choice for one in choices.fastest] == [OTHER, NOW, NOW]
    assert [one.serves for one in choices.fastest] == SERVES
    assert [one.rows for one in choices.fastest] == ROWS
    assert [(one.seconds, one.spread_s) for one in choices.fastest][2] == (3.0, 0.25)


def test_what_some_sizes_say_is_shown_and_makes_no_choices() -> None:
    decisions, choices = decided({NOW: 10.0, OTHER: 7.5}, is_whole=False)
    assert (names(decisions), choices) == (["other"], None)


def test_a_size_at_which_nothing_is_right_leaves_a_spec_without_choices() -> None:
    decisions, choices = decided({NOW: 10.0}, {})
    assert (names(decisions), choices) == (["now"], None)


def test_bits_change_where_no_number_of_rows_loses() -> None:
    few, many = {NOW: 10.0, DIVIDED: 7.0, LARGE: 8.0}, {NOW: 50.0, DIVIDED: 90.0, LARGE: 50.5}
    decisions, choices = decided(few, many)
    assert names(decisions) == ["divided", "large"]
    assert [one.others for one in decisions] == [(NOW,), (NOW,)]
    assert choices is not None


@pytest.mark.parametrize(
    ("few", "many"),
    [
        ({NOW: 10.0, DIVIDED: 7.0}, {NOW: 50.0, DIVIDED: 51.5}),
        ({NOW: 10.0, DIVIDED: 9.9}, {NOW: 50.0, DIVIDED: 49.5}),
        ({NOW: 10.0, DIVIDED: 7.0}, {NOW: 50.0}),
    ],
    ids=["rows that lose", "no gain to speak of", "rows without a time"],
)
def test_bits_stay_otherwise(few: dict[TunedKernel, Any], many: dict[TunedKernel, Any]) -> None:
    decisions, _ = decided(few, many)
    assert names(decisions) == ["now", "now"]


def test_bits_stay_where_not_all_rows_were_timed() -> None:
    decisions, _ = decided({NOW: 10.0, DIVIDED: 7.0}, is_whole=False)
    assert names(decisions) == ["now"]
    assert decisions[0].others == (DIVIDED,)


@pytest.mark.parametrize(("peer_s", "name"), [(56.0, "divided"), (54.0, "now")])
def test_a_loss_is_borne_as_long_as_the_peer_is_slower(peer_s: float, name: str) -> None:
    few = size(0, {NOW: 10.0, DIVIDED: 7.0}, peer_s)
    many = size(1, {NOW: 50.0, DIVIDED: 55.0}, peer_s)
    decisions, _ = decide(TUNINGS, [few, many], is_whole=True)
    assert names(decisions) == [name, name]


def test_a_loss_within_the_spread_is_no_loss() -> None:
    decisions, _ = decided({NOW: 10.0, DIVIDED: 7.0}, {NOW: (50.0, 3.0), DIVIDED: 51.5})
    assert names(decisions) == ["divided", "divided"]
