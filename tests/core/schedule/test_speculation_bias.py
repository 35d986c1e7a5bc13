"""What survived against what was said to."""

import pytest
from deepinfer_core.schedule.speculation_bias import SurvivalBias
from hypothesis import given
from hypothesis import strategies as st


def learned(blocks: int, said: tuple[float, ...], verified: int, accepted: int) -> SurvivalBias:
    bias = SurvivalBias(len(said))
    for _ in range(blocks):
        bias.add(said, verified, accepted)
    return bias


def test_nothing_known_means_nothing_to_correct() -> None:
    assert SurvivalBias(3).corrected((0.9, 0.8, 0.1)) == (0.9, 0.8, 0.1)


def test_what_survives_more_seldom_than_was_said_is_corrected_place_by_place() -> None:
    """996 drafts of 0.5 said and of 1 come: (4 + 996) / (4 + 498); the second never came."""
    bias = learned(996, (0.5, 0.25), verified=2, accepted=1)
    first, second = bias.corrected((0.4, 0.4))
    assert first == pytest.approx(0.4 * 1000 / 502)
    assert second == pytest.approx(0.4 * 4 / 253)


def test_a_draft_that_was_not_verified_says_nothing_about_its_place() -> None:
    bias = learned(996, (0.5, 0.25), verified=1, accepted=0)
    assert bias.corrected((1.0, 0.001))[1] == 0.001


@given(st.lists(st.floats(0, 1), min_size=3, max_size=3), st.integers(0, 3), st.integers(0, 500))
def test_estimates_stay_probabilities_that_never_rise(
    said: list[float], accepted: int, blocks: int
) -> None:
    block = (*sorted(said, reverse=True),)
    found = learned(blocks, block, verified=3, accepted=accepted).corrected(block)
    assert all(0 <= one <= 1 for one in found)
    assert list(found) == sorted(found, reverse=True)


def test_what_was_learned_fades_with_the_blocks_that_come() -> None:
    """Half is left after 346 blocks: ln(2) * 500, less 0.3 in 500."""
    bias = learned(96, (1.0,), verified=1, accepted=0)
    assert bias.corrected((1.0,))[0] == pytest.approx(0.04)
    bias.fade(346)
    assert bias.corrected((1.0,))[0] == pytest.approx(4 / (4 + 48), rel=1e-3)


def test_fewer_estimates_than_places_are_corrected_as_far_as_they_go() -> None:
    assert SurvivalBias(3).corrected((0.5,)) == (0.5,)
    assert SurvivalBias(3).corrected(()) == ()


def test_nothing_known_means_that_all_levels_are_trusted() -> None:
    assert SurvivalBias(1).expected((0.0, 0.35, 1.0)) == (0.0, 0.35, 1.0)


def test_what_drafts_give_together_is_corrected_by_how_high_they_are() -> None:
    """Of 100 drafts of 0.15 half survive, of 100 of 0.95 none.

    Their place forgets at once what it learns. Two imaginary drafts in the middle of their levels,
    0.3 and 1.9 together, stand beside 15 and 95 that were said.
    """
    bias = SurvivalBias(1)
    for number in range(200):
        is_low = number % 2 == 0
        bias.add((0.15 if is_low else 0.95,), 1, int(is_low and number % 4 == 0))
        bias._places.fade(0.0)
    low, middle, high = bias.expected((0.12, 0.55, 0.92))
    assert low == pytest.approx(0.12 * (0.3 + 50) / (0.3 + 15))
    assert middle == 0.55
    assert high == pytest.approx(0.92 * 1.9 / (1.9 + 95))


@given(st.floats(0, 1), st.booleans())
def test_what_is_expected_of_a_draft_is_a_probability(said: float, came: bool) -> None:
    bias = learned(50, (said,), verified=1, accepted=int(came))
    assert 0 <= bias.expected(bias.corrected((said,)))[0] <= 1


def test_levels_fade_too() -> None:
    bias = learned(96, (0.95,), verified=1, accepted=0)
    assert bias.expected((0.95,))[0] < 0.9
    bias.fade(100_000)
    assert bias.expected((0.95,))[0] == pytest.approx(0.95)


def test_drafts_that_promise_too_little_are_not_forgotten_to_be_good_while_none_is_verified() -> (
    None
):
    """Nobody verifies what seems to be worth nothing, so that nothing else would be heard of it."""
    bias = learned(96, (0.5,), verified=1, accepted=1)
    bias.fade(0)
    known = bias.factors
    bias.fade(1000)
    assert bias.factors == known
    bias.add((0.5,), 1, 1)
    bias.fade(1000)
    assert bias.factors[0] < known[0]
