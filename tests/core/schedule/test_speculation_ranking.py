"""Survival by rank, over the last steps."""

import pytest
from deepinfer_core.schedule.speculation import choose_total
from deepinfer_core.schedule.speculation_costs import CostCurve, StepCosts
from deepinfer_core.schedule.speculation_ranking import MeanRanking
from hypothesis import given
from hypothesis import strategies as st

RATES = st.lists(st.lists(st.floats(0, 1), max_size=5), max_size=6)


def test_the_first_step_is_all_that_is_known() -> None:
    assert list(MeanRanking().add([(0.5, 0.25), (0.75,)])) == [0.75, 0.5, 0.25]


def test_a_step_counts_a_quarter() -> None:
    ranking = MeanRanking()
    ranking.add([(0.75, 0.5)])
    assert list(ranking.add([(0.25,), (0.25,)])) == [0.625, 0.4375]


def test_who_has_which_rank_does_not_matter() -> None:
    ranking = MeanRanking()
    ranking.add([(0.75,), (0.5,)])
    assert list(ranking.add([(0.5,), (0.75,)])) == [0.75, 0.5]


@pytest.mark.parametrize(
    ("rates", "known"), [([(0.0, 0.0)], [0.75, 0.5]), ([(0.0,) * 5], [0.75, 0.75, 0.5, 0.5, 0.5])]
)
def test_of_other_numbers_of_drafts_each_follows_the_one_as_far_down(
    rates: list[tuple[float, ...]], known: list[float]
) -> None:
    """Of 0.75, 0.75, 0.5 and 0.5 the middles of halves are the second and the fourth."""
    ranking = MeanRanking()
    ranking.add([(0.75, 0.75, 0.5, 0.5)])
    assert list(ranking.add(rates)) == [0.75 * one for one in known]


def test_a_step_without_drafts_changes_nothing() -> None:
    ranking = MeanRanking()
    ranking.add([(0.75,)])
    assert list(ranking.add([(), ()])) == []
    assert list(ranking.add([(0.75,)])) == [0.75]


@given(st.lists(RATES, min_size=1, max_size=5))
def test_it_never_rises_and_has_as_many_as_there_are_drafts(
    steps: list[list[list[float]]],
) -> None:
    ranking = MeanRanking()
    for rates in steps:
        found = list(ranking.add(rates))
        assert len(found) == sum(map(len, rates))
        assert found == sorted(found, reverse=True)
        assert all(0 <= one <= 1 for one in found)


def test_a_total_is_chosen_by_it() -> None:
    """A second draft costs 1 ms of 11: it must bring more than a tenth of 1.9 tokens."""
    costs = StepCosts(curve=CostCurve(rows=(1, 2, 3), milliseconds=(9.0, 10.0, 11.0)))
    assert choose_total([(0.9, 0.1)], costs).rows == 2
    assert choose_total([(0.9, 0.1)], costs, ranking=(0.9, 0.3)).rows == 3
    assert choose_total([(0.9, 0.9)], costs, ranking=(0.9, 0.0)).rows == 2
