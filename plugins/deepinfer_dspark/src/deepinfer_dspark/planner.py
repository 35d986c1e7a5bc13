"""How many drafts of each sequence does a step verify, and is the next draft round worth its time?

The decisions are those of ``deepinfer_core.schedule.speculation``; here is the memory that they
need between steps: what steps took beyond the measured curve, how well drafts survived so far, and
whether drafting pays at present.

While no round is run nothing new is learned about drafts, and a text that has become easy would go
unnoticed. So every 256th step without drafts is followed by a round: at worst, where a round takes
as long as a step, 0.4 % of the time.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepinfer_core.interfaces.drafter import DraftOutcome, DraftPlanner, DraftView, StepTimes
from deepinfer_core.schedule.speculation import budget_rates, choose_total, split, survival
from deepinfer_core.schedule.speculation_costs import StepCosts
from deepinfer_core.schedule.speculation_mode import DraftingMode, next_mode
from deepinfer_core.schedule.speculation_prior import MeanSurvival
from deepinfer_core.schedule.speculation_times import ContextSlope, RecentTimes

from deepinfer_dspark.measuring import MeasuredCosts

__all__ = ["DsparkPlanner"]

_STEPS_BETWEEN_TRIALS = 256


class DsparkPlanner(DraftPlanner):
    """Plans by confidences and measured costs.

    Args:
        measured: what steps and rounds take.
        drafts: of a round.
    """

    def __init__(self, measured: MeasuredCosts, drafts: int) -> None:
        self._measured = measured
        self._drafts = drafts
        self._slope = ContextSlope(measured.steps)
        self._sampler = RecentTimes()
        self._mean = MeanSurvival(drafts)
        self._mode = DraftingMode()
        self._since_trial = 0

    def rows(self, views: Sequence[DraftView], *, other_rows: int) -> Sequence[int]:
        """Say how many rows each sequence feeds; see the interface."""
        costs, prior = self._costs(len(views)), self._mean.rates
        offered = [budget_rates(view, prior) for view in views]
        best = choose_total(offered, costs, other_rows=other_rows)
        promised = best
        if not self._mode.is_drafting:
            # Nobody has drafts; what they would promise is what they promised before.
            promised = choose_total([prior] * len(views), costs, other_rows=other_rows)
        self._mode = next_mode(self._mode, promised, costs, len(views), other_rows=other_rows)
        self._since_trial = 0 if self._mode.is_drafting else self._since_trial + 1
        return split(views, best.rows, prior)

    def drafts_next(self) -> bool:
        """Whether drafting pays, or is tried."""
        return self._mode.is_drafting or self._since_trial % _STEPS_BETWEEN_TRIALS == 0

    def learn(self, outcomes: Sequence[DraftOutcome]) -> None:
        """Take the confidences of one step's blocks."""
        for item in outcomes:
            if item.confidences:
                self._mean.add_rates(survival(item.confidences))

    def took(self, times: StepTimes) -> None:
        """Take the times of one step."""
