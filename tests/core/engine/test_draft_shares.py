"""Rounds of the drafter, summed up."""

import pytest
from deepinfer_core.engine.draft_rounds import DraftRound, draft_shares


def a_round(accepted: int, confidences: tuple[float, ...], wanted: int | None = None) -> DraftRound:
    drafts = len(confidences)
    return DraftRound(
        position=1,
        anchor=2,
        drafts=(3,) * drafts,
        confidences=confidences,
        wanted=(3,) * (drafts if wanted is None else wanted),
        accepted=accepted,
    )


def test_shares_are_means_over_rounds_of_drafts_with_all_before_them() -> None:
    found = draft_shares([a_round(2, (0.5, 0.5)), a_round(1, (1.0, 0.25)), a_round(0, (0.0, 1.0))])
    assert found is not None
    assert (found.rounds, found.accepted_per_round) == (3, pytest.approx(1.0))
    assert found.survived == (2 / 3, 1 / 3)
    assert found.expected == (0.5, pytest.approx(0.5 / 3))


def test_rounds_at_the_end_of_a_text_do_not_count() -> None:
    found = draft_shares([a_round(0, (0.5, 0.5)), a_round(1, (0.9, 0.9), wanted=1)])
    assert found is not None
    assert (found.rounds, found.survived) == (1, (0.0, 0.0))


def test_without_a_whole_round_there_is_nothing_to_say() -> None:
    assert draft_shares([a_round(0, (0.5, 0.5), wanted=0)]) is None
