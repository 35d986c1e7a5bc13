"""What do steps take at present, given what they were measured to take and what they took lately?

A size that steps had takes what it took: the mean of the middle half of its last 9 steps. What the
curve cannot know is in there: long contexts, samplers with many settings, the host's own work, and
other programs on the machine. A size that none had takes what was measured, by the factor that
sizes near it suggest.

Steps with drafts and without are told apart, as most of the time only those of one kind are run.
The others are kept relative to these: what they took when they were tried, by how much slower the
usual ones have become since that trial. A size that one kind never had follows those that it had,
since the host's work differs: with drafts it is for some tokens a row, without for one.

Source: the cost model of DeepInfer 0.1.0, which has a price a row, and medians of the sampler.
"""

from __future__ import annotations

from dataclasses import replace

from deepinfer_core.interfaces.draft_planner import StepTimes
from deepinfer_core.schedule.speculation_costs import CostCurve, StepCosts
from deepinfer_core.schedule.speculation_times import Drift, RecentTimes, followed

from deepinfer_dspark.measuring import MeasuredCosts, rising

__all__ = ["PresentCosts"]

_HOPE = 0.9
"""What may be left of the time that a size is taken for which no step had. A curve is off by that
much where it was measured beside other work, or where the host's work is no factor of it."""


class PresentCosts:
    """Costs that follow the steps.

    Args:
        measured: before the first of them.
    """

    def __init__(self, measured: MeasuredCosts) -> None:
        self._measured = measured
        self._plain = RecentTimes(measured.steps)
        self._drafting = RecentTimes(measured.steps)
        self._rounds = RecentTimes(measured.rounds)
        self._is_drafting = True
        """Whether steps usually have drafts."""
        self._drift = Drift(())  # the curve is no measure of what the host adds

    def add(self, times: StepTimes) -> None:
        """Take the times of one step; one larger than all that were measured says nothing."""
        has_drafts = times.rows > times.sequences
        step_ms, steps = 1e3 * times.step_s, self._drafting if has_drafts else self._plain
        if times.round_s is not None:
            step_ms -= 1e3 * times.round_s
            since = 1.0 if self._is_drafting else self._drift.factor
            self._rounds.add(times.sequences, 1e3 * times.round_s / since)
        elif times.drafted:
            step_ms -= self.of(times.sequences).drafter_ms
        if has_drafts == self._is_drafting:
            self._drift.add(self._measured.steps.place(times.rows), step_ms)
            steps.add(times.rows, step_ms)
        else:
            steps.add(times.rows, step_ms / self._drift.factor)

    def settle(self, *, is_drafting: bool) -> None:
        """Both kinds of steps were run side by side just now; drift is counted from here.

        Args:
            is_drafting: whether steps have drafts from now on.
        """
        for times in (self._plain,) if self._is_drafting else (self._drafting, self._rounds):
            times.scale(self._drift.factor)
        self._is_drafting = is_drafting
        usual = self._drafting if is_drafting else self._plain
        self._drift = Drift(followed(self._measured.steps, usual.known_ms))

    def are_timed(self, *, with_drafts: bool) -> bool:
        """Whether some size of one kind of steps was."""
        return bool((self._drafting if with_drafts else self._plain).known_ms)

    def of(self, sequences: int) -> StepCosts:
        """Costs where so many sequences decode: steps of more rows have drafts."""
        curves, since = self._measured, self._drift.factor
        plain_since, drafting_since = (since, 1.0) if self._is_drafting else (1.0, since)
        plain_ms = _slower(self._plain, plain_since)
        drafting_ms = _slower(self._drafting, drafting_since)
        # Behind the last size without drafts.
        first = curves.steps.place(sequences) + 1
        steps_ms = [
            *followed(curves.steps, plain_ms or drafting_ms)[:first],
            *followed(curves.steps, drafting_ms or plain_ms)[first:],
        ]
        rounds_ms = rising(followed(curves.rounds, _slower(self._rounds, drafting_since)))
        return StepCosts(
            curve=CostCurve(rows=curves.steps.rows, milliseconds=rising(steps_ms)),
            drafter_ms=rounds_ms[min(curves.rounds.place(sequences), len(rounds_ms) - 1)],
        )

    def hopeful(self, costs: StepCosts, sequences: int) -> StepCosts:
        """The same, but that sizes that few steps with drafts had look as fast as they may be."""
        curve, drafting = costs.curve, self._drafting
        first = curve.place(sequences) + 1
        since = 1.0 if self._is_drafting else self._drift.factor
        times_ms = [
            one_ms
            if place < first
            else min(one_ms, since * drafting.hoped_ms(place))
            if place in drafting.known_ms
            else _HOPE * one_ms
            for place, one_ms in enumerate(curve.milliseconds)
        ]
        return replace(costs, curve=CostCurve(rows=curve.rows, milliseconds=rising(times_ms)))


def _slower(times: RecentTimes, factor: float) -> dict[int, float]:
    return {place: factor * known_ms for place, known_ms in times.known_ms.items()}
