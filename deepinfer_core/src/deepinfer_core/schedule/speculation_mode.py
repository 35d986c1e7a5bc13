"""Is drafting worth its time at all, under the present load?

A draft round costs the same whatever is verified of it. Where even the best total is expected to be
slower than steps without drafts, no round is run; what is needed to come back, rates of drafts that
nobody drew, are means of earlier ones (``speculation_prior``).

Estimates fluctuate, so a mode is left only when it has lost for long enough: the time that it is
expected to lose against the other one is summed up, never below 0, until it reaches the price of
four changes. A change wastes one draft round, the last one or the first one, so that is its price.
What hesitation loses before a change is no more than four rounds and one step's loss; a lower limit
is passed by chance too often where other programs disturb the steps. Sixteen changes are waited for
while one of the ways was never timed, since nothing but a curve, which knows little of the host's
work, speaks against the other.
"""

from __future__ import annotations

from typing import NamedTuple

from deepinfer_core.schedule.speculation import Total
from deepinfer_core.schedule.speculation_costs import StepCosts

__all__ = ["DraftingMode", "next_mode", "wants_change"]

_CHANGES = 4
_CHANGES_UNTIMED = 16


class DraftingMode(NamedTuple):
    """Whether draft rounds are run.

    Attributes:
        is_drafting: whether the next step is followed by a draft round.
        lost_ms: how far the other mode is ahead.
    """

    is_drafting: bool = True
    lost_ms: float = 0.0


def next_mode(
    mode: DraftingMode,
    best: Total,
    costs: StepCosts,
    sequences: int,
    *,
    other_rows: int = 0,
    steps: int = 1,
    are_timed: bool = True,
) -> DraftingMode:
    """Take one comparison into account.

    Args:
        mode: so far.
        best: what drafting promises, whether or not it is done; see ``choose_total``.
        costs: what ``best`` was chosen with.
        sequences: that decode, at least 1.
        other_rows: rows of prompts in the same step.
        steps: that the comparison is of.
        are_timed: steps of both kinds were.

    Returns:
        The mode from now on. While no draft round was timed, drafting looks free and goes on.
    """
    plain_ms = costs.plain_ms(sequences + other_rows)
    if mode.is_drafting:
        ahead_ms = best.step_ms - plain_ms * best.expected_tokens / sequences
    else:
        ahead_ms = plain_ms - best.step_ms * sequences / best.expected_tokens
    lost_ms = max(0.0, mode.lost_ms + steps * ahead_ms)
    if lost_ms > (_CHANGES if are_timed else _CHANGES_UNTIMED) * costs.drafter_ms:
        return DraftingMode(not mode.is_drafting)
    return DraftingMode(mode.is_drafting, lost_ms)


def wants_change(mode: DraftingMode, costs: StepCosts) -> bool:
    """Whether the mode would be left, had both kinds of steps been timed."""
    return mode.lost_ms > _CHANGES * costs.drafter_ms
