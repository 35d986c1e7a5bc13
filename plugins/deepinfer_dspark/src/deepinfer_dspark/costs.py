"""What do steps take at present, given what they were measured to take and what they took lately?

A size that steps had lately takes what it took: the mean of the middle half of its last 9 steps.
What the curve cannot know is in there: long contexts, samplers with many settings, the host's own
work, and other programs on the machine. A size that none had takes what was measured, by the factor
that sizes near it suggest.

Source: the cost model of DeepInfer 0.1.0, which has a price a row, and medians of the sampler.
"""

from __future__ import annotations

from deepinfer_core.interfaces.draft_planner import StepTimes
from deepinfer_core.schedule.speculation_costs import CostCurve, StepCosts
from deepinfer_core.schedule.speculation_times import RecentTimes

from deepinfer_dspark.measuring import MeasuredCosts, rising

__all__ = ["PresentCosts"]


class PresentCosts:
    """Costs that follow the steps.

    Args:
        measured: before the first of them.
    """

    def __init__(self, measured: MeasuredCosts) -> None:
        self._measured = measured
        self._steps = RecentTimes(measured.steps)
        self._rounds = RecentTimes(measured.rounds)
        self._steps_curve: CostCurve | None = measured.steps
        self._rounds_curve: CostCurve | None = measured.rounds
        """Both None where times came since they were worked out."""

    def add(self, times: StepTimes) -> None:
        """Take the times of one step; one larger than all that were measured says nothing."""
        round_ms = 0.0
        if times.round_s is not None:
            round_ms = 1e3 * times.round_s
            self._rounds.add(times.sequences, round_ms)
            self._rounds_curve = None
        elif times.drafted:
            round_ms = self.round_ms(times.sequences)
        self._steps.add(times.rows, 1e3 * times.step_s - round_ms)
        self._steps_curve = None

    def of(self, sequences: int) -> StepCosts:
        """Costs where so many sequences decode."""
        if self._steps_curve is None:
            self._steps_curve = _followed(self._measured.steps, self._steps)
        return StepCosts(curve=self._steps_curve, drafter_ms=self.round_ms(sequences))

    def knows(self, rows: int) -> bool:
        """Whether steps of that size were seen lately."""
        return self._steps.knows(rows)

    def round_ms(self, sequences: int) -> float:
        """What rounds took lately; before that, what was measured."""
        if self._rounds_curve is None:
            self._rounds_curve = _followed(self._measured.rounds, self._rounds)
        rounds = self._rounds_curve
        place = min(rounds.place(sequences), len(rounds.rows) - 1)
        return rounds.milliseconds[place]


def _followed(measured: CostCurve, recent: RecentTimes) -> CostCurve:
    return CostCurve(rows=measured.rows, milliseconds=rising(recent.times_ms()))
