"""Which way of decoding is faster, by pairs of a few steps."""

from math import log

import pytest
from deepinfer_core.schedule.speculation_trial import Pace, Trial, distance, ruling


def pace(*steps: tuple[int, int, float | None], sequences: int = 8) -> Pace:
    """Of steps with rows, tokens and milliseconds."""
    made = Pace(sequences)
    for step in steps:
        made.add(*step)
    return made


USUAL = [(8, 8, 4.0)] * 4


def trial() -> Trial:
    return Trial(pace(*USUAL))


def other(made: Trial, step_ms: float | None, times: int = 4, sequences: int = 8) -> None:
    """Steps that verify and give 16 tokens."""
    for _ in range(times):
        made.add(sequences, 24, 16, step_ms, is_other=True)


def usual(made: Trial, step_ms: float = 4.0, times: int = 4) -> None:
    for _ in range(times):
        made.add(8, 8, 8, step_ms, is_other=False)


@pytest.mark.parametrize(("times", "is_known"), [(3, False), (4, True)])
def test_a_pace_is_known_from_four_steps_on_that_were_timed(times: int, is_known: bool) -> None:
    assert pace(*USUAL[:times], *[(8, 8, None)] * 4).is_known is is_known


def test_of_a_few_steps_the_faster_half_counts() -> None:
    """Two of four and four of nine may be disturbed."""
    assert pace((8, 8, 4.0), (8, 8, 90.0), (8, 8, 4.0), (8, 8, 50.0)).tokens_per_ms == 2.0
    assert pace(*USUAL, *[(8, 8, 90.0)] * 4, (8, 8, 4.0)).tokens_per_ms == 2.0


def test_tokens_of_steps_that_were_not_timed_count_if_others_of_their_size_were() -> None:
    """10 and 6 tokens, and 100 in a size that nobody knows the time of."""
    steps = [(24, 10, 4.0)] * 4 + [(24, 6, None)] * 4 + [(48, 100, None)]
    assert pace(*steps).tokens_per_ms == 8 / 4


def test_each_size_takes_its_own_time() -> None:
    """24 tokens take 4 ms and 36 take 8: the larger steps are not taken for disturbed ones."""
    assert pace(*[(24, 24, 4.0), (48, 36, 8.0)] * 2).tokens_per_ms == 60 / 12


def test_only_the_last_nine_steps_count() -> None:
    assert pace((8, 800, 4.0), *USUAL, *USUAL, (8, 8, 4.0)).tokens_per_ms == 2.0


@pytest.mark.parametrize(("sequences", "is_of"), [(16, True), (14, True), (18, True), (19, False)])
def test_an_eighth_more_or_fewer_sequences_are_alike(sequences: int, is_of: bool) -> None:
    assert Pace(16).is_of(sequences) is is_of


def test_a_pair_is_the_other_way_between_the_usual_one_before_and_behind() -> None:
    """16 tokens in 4 ms against 8 in 4 before and 8 in 4.4 behind."""
    made = trial()
    assert made.tries_other
    other(made, 4.0)
    assert not made.tries_other
    usual(made, 4.4)
    assert made.pairs == [pytest.approx(log(4.0) - (log(8 / 4) + log(8 / 4.4)) / 2)]
    assert (made.has_won, made.is_over) == (True, True)


def test_a_machine_that_slows_down_steadily_misleads_nobody() -> None:
    """Equal ways: 4, 4.2 and 4.4 ms for the same tokens."""
    made = trial()
    other(made, 8.4)
    usual(made, 4.4)
    assert abs(made.mean) < 0.002


def test_a_way_that_loses_clearly_is_tried_once() -> None:
    made = trial()
    other(made, 9.0)
    usual(made)
    assert (made.has_won, made.is_over, len(made.pairs)) == (False, True, 1)


def test_a_doubtful_pair_is_followed_by_others_the_usual_steps_between_shared() -> None:
    """16 tokens in 7.6 ms against 16 in 8, five hundredths each time: won behind the fourth."""
    made = trial()
    for pairs in range(1, 5):
        assert (made.is_over, made.tries_other) == (False, True)
        other(made, 7.6)
        usual(made)
        assert len(made.pairs) == pairs
    assert made.has_won


def test_a_pair_in_which_the_usual_way_changed_says_nothing() -> None:
    """The texts or the machine became others: twice as slow behind as before."""
    made = trial()
    other(made, 8.0)
    usual(made, 8.0)
    assert (made.pairs, made.is_over) == ([], False)
    other(made, 8.0)
    usual(made, 8.0)
    assert made.pairs == [pytest.approx(log(2.0))]


def test_a_trial_that_is_never_undisturbed_ends_without_a_ruling() -> None:
    made = trial()
    for step_ms in (8.0, 4.0, 8.0, 4.0):
        other(made, 8.0)
        usual(made, step_ms)
    assert (made.has_won, made.is_over) == (None, True)


@pytest.mark.parametrize(("sequences", "step_ms"), [(8, None), (10, 4.0)])
def test_a_trial_ends_without_a_ruling_where_nothing_can_be_timed(
    sequences: int, step_ms: float | None
) -> None:
    """16 steps are enough to see that."""
    made = trial()
    other(made, step_ms, times=15, sequences=sequences)
    assert not made.is_over
    other(made, step_ms, times=1, sequences=sequences)
    assert (made.has_won, made.is_over) == (None, True)


def test_steps_that_lead_from_one_way_to_the_other_are_of_neither() -> None:
    made = trial()
    made.add(8, 8, 8, 90.0, is_other=None)
    other(made, 4.0, times=3)
    made.add(8, 8, 8, 90.0, is_other=False)
    assert made.tries_other
    other(made, 4.0, times=1)
    usual(made)
    assert made.pairs == [pytest.approx(log(2.0))]


@pytest.mark.parametrize(
    ("pairs", "won"),
    [
        ((0.11,), True),
        ((0.09,), None),
        ((-0.09,), None),
        ((-0.1,), False),
        ((0.09, 0.06), True),
        ((0.09, 0.04), None),
        ((0.01, -0.01), False),
        ((0.05, 0.05, 0.05), None),
        ((0.05, 0.05, 0.09), True),
        ((0.01, 0.01, 0.01, 0.01), True),
        ((0.05, 0.05, -0.05, -0.06), False),
    ],
)
def test_a_ruling_needs_a_clear_mean_or_four_pairs(
    pairs: tuple[float, ...], won: bool | None
) -> None:
    assert ruling(pairs) is won


def test_distances_double_up_to_the_most() -> None:
    assert [distance(n, most=256) for n in range(5)] == [16, 64, 128, 256, 256]
    assert [distance(n, most=1024) for n in (4, 5, 6, 99)] == [512, 1024, 1024, 1024]
