"""Would the other way of decoding, with draft rounds or without, be faster under the present load?

What is compared here are estimates: the best total that drafts promise against steps without. They
say when it is time to look, and a trial (``speculation_trial``) says what is so. They fluctuate, so
the time that the present way is expected to lose is summed up, never below 0, and the other one is
*called* for when that is the price of four changes. A change wastes one draft round, the last one
or the first one, so that is its price; a lower limit is passed by chance too often where other
programs disturb the steps. Where no trial can be, as prompts are in every step, sixteen changes'
price must be lost, and then the estimates are believed.

What a trial found at a number of sequences is kept as a *correction* of what is estimated there.
"""

from __future__ import annotations

from typing import NamedTuple

from deepinfer_core.schedule.speculation import Total
from deepinfer_core.schedule.speculation_costs import StepCosts

__all__ = ["DraftingMode", "Lead", "is_called", "is_lost", "lead", "next_mode"]

_CHANGES = 4
_CHANGES_UNTIMED = 16


class DraftingMode(NamedTuple):
    """Whether draft rounds are run.

    Attributes:
        is_drafting: whether the next step is followed by a draft round.
        lost_ms: how far the other mode is ahead, as estimated.
    """

    is_drafting: bool = True
    lost_ms: float = 0.0


class Lead(NamedTuple):
    """Drafting against steps without drafts.

    Attributes:
        ratio: how many times as fast drafting is.
        drafting_ms: what a step that drafts loses against the time that its tokens take without.
        plain_ms: what a step that does not loses against the time that its tokens take with drafts.
    """

    ratio: float
    drafting_ms: float
    plain_ms: float


def lead(
    best: Total, costs: StepCosts, sequences: int, *, other_rows: int = 0, correction: float = 1.0
) -> Lead:
    """Compare estimates.

    Args:
        best: what drafting promises, whether or not it is done; see ``choose_total``.
        costs: what ``best`` was chosen with.
        sequences: that decode, at least 1.
        other_rows: rows of prompts in the same step.
        correction: by which drafting was faster than estimated when both were timed.
    """
    plain_ms = costs.plain_ms(sequences + other_rows)
    tokens = correction * best.expected_tokens / sequences
    without_ms, with_ms = plain_ms * tokens, best.step_ms / tokens
    return Lead(without_ms / best.step_ms, best.step_ms - without_ms, plain_ms - with_ms)


def next_mode(mode: DraftingMode, found: Lead, *, steps: int = 1) -> DraftingMode:
    """Take one comparison into account; the mode stays.

    Args:
        mode: so far.
        found: by the comparison.
        steps: that it is of.
    """
    ahead_ms = found.drafting_ms if mode.is_drafting else found.plain_ms
    return mode._replace(lost_ms=max(0.0, mode.lost_ms + steps * ahead_ms))


def is_called(mode: DraftingMode, costs: StepCosts) -> bool:
    """Whether the other mode is to be tried.

    While no draft round was timed, drafting looks free and is not doubted.
    """
    return mode.lost_ms > _CHANGES * costs.drafter_ms


def is_lost(mode: DraftingMode, costs: StepCosts) -> bool:
    """Whether the mode is to be left where nothing can be tried."""
    return mode.lost_ms > _CHANGES_UNTIMED * costs.drafter_ms
