"""What do steps take at present, given what they were measured to take and what they took lately?

A size that steps had lately takes what it took: the median of its last 9 steps. What the curve
cannot know is in there: long contexts, samplers with many settings, the host's own work, and other
programs on the machine. A size that none had takes what was measured, and a price a row more that
all sizes together suggest.

Source: the cost model of DeepInfer 0.1.0, which has the price a row, and medians of the sampler.
"""

from __future__ import annotations

from collections import deque
from statistics import median

from deepinfer_core.interfaces.draft_planner import StepTimes
from deepinfer_core.schedule.speculation_costs import CostCurve, StepCosts
from deepinfer_core.schedule.speculation_times import ContextSlope, RecentTimes

from deepinfer_dspark.measuring import MeasuredCosts, rising

__all__ = ["PresentCosts"]

_RECENT_STEPS = 9
_ENOUGH_STEPS = 5


class PresentCosts:
    """Costs that follow the steps.

    Args:
        measured: before the first of them.
    """

    def __init__(self, measured: MeasuredCosts) -> None:
        self._measured = measured
        self._slope = ContextSlope(measured.steps)
        self._steps = [deque[float](maxlen=_RECENT_STEPS) for _ in measured.steps.rows]
        self._rounds = RecentTimes()
        self._curve = measured.steps

    def add(self, times: StepTimes) -> None:
        """Take the times of one step; one larger than all that were measured says nothing."""
        if times.round_s is not None:
            self._rounds.add(times.sequences, 1e3 * times.round_s)
        round_ms = self.round_ms(times.sequences) if times.drafted else 0.0
        step_ms = max(0.0, 1e3 * times.step_s - round_ms)
        place = self._measured.steps.place(times.rows)
        if place < len(self._steps):
            self._slope.add(times.rows, step_ms)
            self._steps[place].append(step_ms)
            self._curve = self._followed()

    def of(self, sequences: int) -> StepCosts:
        """Costs where so many sequences decode."""
        return StepCosts(curve=self._curve, drafter_ms=self.round_ms(sequences))

    def round_ms(self, sequences: int) -> float:
        """What rounds took lately; before that, what was measured."""
        rounds = self._measured.rounds
        place = min(rounds.place(sequences), len(rounds.rows) - 1)
        return self._rounds.estimate_ms(sequences) or rounds.milliseconds[place]

    def _followed(self) -> CostCurve:
        measured, slope_ms = self._measured.steps, max(0.0, self._slope.slope_ms)
        points = zip(measured.rows, measured.milliseconds, self._steps, strict=True)
        times_ms = [
            median(recent) if len(recent) >= _ENOUGH_STEPS else base_ms + slope_ms * rows
            for rows, base_ms, recent in points
        ]
        return CostCurve(rows=measured.rows, milliseconds=rising(times_ms))
