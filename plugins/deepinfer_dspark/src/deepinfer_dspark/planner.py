"""How many drafts of each sequence does a step verify, and is the next draft round worth its time?

The decisions are those of ``deepinfer_core.schedule.speculation``; here is the memory that they
need between steps: what steps took beyond the measured curve, how well drafts survived so far, and
whether drafting pays at present.

While no round is run nothing new is learned about drafts, and a text that has become easy would go
unnoticed. So a round is tried whenever steps without drafts have taken 256 times as long as one:
0.4 % of the time.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepinfer_core.interfaces.draft_planner import (
    DraftPlanner,
    DraftView,
    StepTimes,
)
from deepinfer_core.schedule.speculation import budget_rates, choose_total, split
from deepinfer_core.schedule.speculation_mode import DraftingMode, next_mode
from deepinfer_core.schedule.speculation_prior import MeanSurvival

from deepinfer_dspark.costs import PresentCosts
from deepinfer_dspark.measuring import MeasuredCosts

__all__ = ["DsparkPlanner"]

_ROUNDS_BETWEEN_TRIALS = 256


class DsparkPlanner(DraftPlanner):
    """Plans by confidences and costs.

    Args:
        measured: what steps and draft rounds take.
        drafts: of a round.
    """

    def __init__(self, measured: MeasuredCosts, drafts: int) -> None:
        self._present = PresentCosts(measured)
        self._mean = MeanSurvival(drafts)
        self._mode = DraftingMode()
        self._plain_ms = 0.0
        """What steps have taken since the last draft round."""

    def rows(self, views: Sequence[DraftView], *, other_rows: int) -> Sequence[int]:
        """Say how many rows each sequence feeds; see the interface."""
        sequences, prior = len(views), self._mean.rates
        costs = self._present.of(sequences)
        rates = [budget_rates(view, prior) if view.drafts else () for view in views]
        best = choose_total(rates, costs, other_rows=other_rows)
        promised = best
        if not all(rates):
            # Whoever has no drafts now would have ordinary ones.
            promised = choose_total([each or prior for each in rates], costs, other_rows=other_rows)
        self._mode = next_mode(self._mode, promised, costs, sequences, other_rows=other_rows)
        self._count_plain(best.step_ms - costs.drafter_ms, costs.drafter_ms)
        given = split(views, best.rows, prior) if best.rows > sequences else (1,) * sequences
        # Only now: what a step is planned with must not depend on its own blocks.
        for view in views:
            if view.drafts and view.newest is not None:
                self._mean.add_rates(view.newest)
        return given

    def drafts_next(self) -> bool:
        """Whether drafting pays, or is tried."""
        return self._plain_ms == 0.0

    def took(self, times: StepTimes) -> None:
        """Take the times of one step."""
        self._present.add(times)

    def _count_plain(self, step_ms: float, round_ms: float) -> None:
        """Begin anew where a round is run behind this step: always, or to try."""
        is_due = self._plain_ms >= _ROUNDS_BETWEEN_TRIALS * round_ms
        self._plain_ms = 0.0 if self._mode.is_drafting or is_due else self._plain_ms + step_ms
