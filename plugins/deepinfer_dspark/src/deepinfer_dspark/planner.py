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

from deepinfer_core.interfaces.draft_planner import (
    DraftPlanner,
    DraftView,
    StepTimes,
)
from deepinfer_core.schedule.speculation import budget_rates, choose_total, split
from deepinfer_core.schedule.speculation_costs import StepCosts
from deepinfer_core.schedule.speculation_mode import DraftingMode, next_mode
from deepinfer_core.schedule.speculation_prior import MeanSurvival
from deepinfer_core.schedule.speculation_times import ContextSlope, RecentTimes

from deepinfer_dspark.measuring import MeasuredCosts

__all__ = ["DsparkPlanner"]

_STEPS_BETWEEN_TRIALS = 256


class DsparkPlanner(DraftPlanner):
    """Plans by confidences and costs.

    Args:
        measured: what forward passes and draft rounds take.
        drafts: of a round.
    """

    def __init__(self, measured: MeasuredCosts, drafts: int) -> None:
        self._measured = measured
        self._slope = ContextSlope(measured.forwards)
        self._others = RecentTimes()
        """Sampling, and what of the host's work does not hide behind the device's."""
        self._rounds = RecentTimes()
        self._mean = MeanSurvival(drafts)
        self._mode = DraftingMode()
        self._plain_steps = 0

    def rows(self, views: Sequence[DraftView], *, other_rows: int) -> Sequence[int]:
        """Say how many rows each sequence feeds; see the interface."""
        sequences, prior = len(views), self._mean.rates
        costs = self._costs(sequences)
        rates = [budget_rates(view, prior) if view.drafts else () for view in views]
        best = choose_total(rates, costs, other_rows=other_rows)
        promised = best
        if not all(rates):
            # Whoever has no drafts now would have ordinary ones.
            promised = choose_total([each or prior for each in rates], costs, other_rows=other_rows)
        self._mode = next_mode(self._mode, promised, costs, sequences, other_rows=other_rows)
        self._plain_steps = 0 if self._mode.is_drafting else self._plain_steps + 1
        given = split(views, best.rows, prior) if best.rows > sequences else (1,) * sequences
        # Only now: what a step is planned with must not depend on its own blocks.
        for view in views:
            if view.drafts and view.newest is not None:
                self._mean.add_rates(view.newest)
        return given

    def drafts_next(self) -> bool:
        """Whether drafting pays, or is tried."""
        return self._plain_steps % _STEPS_BETWEEN_TRIALS == 0

    def took(self, times: StepTimes) -> None:
        """Take the times of one step."""
        if times.round_s is not None:
            self._rounds.add(times.sequences, 1e3 * times.round_s)
        round_ms = self._round_ms(times.sequences) if times.drafted else 0.0
        rest_ms = 1e3 * times.step_s - round_ms
        if times.forward_s is None:
            self._slope.add(times.rows, rest_ms)
        else:
            self._slope.add(times.rows, 1e3 * times.forward_s)
            self._others.add(times.sequences, rest_ms - 1e3 * times.forward_s)

    def _costs(self, sequences: int) -> StepCosts:
        return StepCosts(
            curve=self._measured.forwards,
            slope_ms=self._slope.slope_ms,
            sampler_ms=self._others.estimate_ms(sequences),
            drafter_ms=self._round_ms(sequences),
        )

    def _round_ms(self, sequences: int) -> float:
        """What rounds took lately; before that, what was measured."""
        rounds = self._measured.rounds
        place = min(rounds.place(sequences), len(rounds.rows) - 1)
        return self._rounds.estimate_ms(sequences) or rounds.milliseconds[place]
