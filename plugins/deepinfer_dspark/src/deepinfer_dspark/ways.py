"""Are steps decoded with draft rounds or without, and when is the other way tried?

Estimates only call for a trial; what steps took and gave in it is what decides. A trial is due when
its *price*, the tokens that it costs, was earned so often (``distance``): 16 times at first, 64
times behind the first ruling, then twice as often each time, and at most 256 times where no drafts
are made and 1024 times where they are, since what becomes of drafts is seen there all the time and
a trial only shows what a step without takes. Behind a clear ruling it is the most at once. A trial
that estimates call for comes at once behind a clear ruling, as something changed since; else, or
where calls were in vain, when its price was earned 64 times, 128 times and so on.

So what is lost against the better way is bounded, while neither becomes the better one. Trials take
1/256 of the time for good, 1/1024 where drafts pay (up to four times that where one needs four
pairs and the one before needed one); until then the price of one trial each time that the time
spent doubles, seven at most. A wrong ruling needs a pair that is two standard deviations off, or
more of the way that wins; what is lost then is what the ways differ by, until the next trial, which
comes the sooner the less it seemed to win. Where the other way becomes the better one it is taken
up when the price was earned once more, if estimates do not call before.
"""

from __future__ import annotations

from math import exp, log

from deepinfer_core.interfaces.draft_planner import StepTimes
from deepinfer_core.schedule.speculation import Total
from deepinfer_core.schedule.speculation_costs import StepCosts
from deepinfer_core.schedule.speculation_mode import (
    DraftingMode,
    Lead,
    is_called,
    is_lost,
    lead,
    next_mode,
)
from deepinfer_core.schedule.speculation_trial import CLEAR, Pace, Trial, distance

from deepinfer_dspark.costs import PresentCosts

__all__ = ["Ways"]

_TRIAL_STEPS = 7
"""Of the other way in a pair: one that leads there, two that are not timed, four that are."""

_MOST_IF_DRAFTING, _MOST_IF_NOT = 1024, 256
_CALLS_IN_VAIN = 2
"""Doublings from the nearest distance to that of the first call behind a doubtful ruling."""


class Ways:
    """The way that is usual at present, and trials of the other one.

    Args:
        present: what steps take; told when both ways were run side by side.
    """

    def __init__(self, present: PresentCosts) -> None:
        self._present = present
        self._mode = DraftingMode()
        self._pace = Pace()
        self._trial: Trial | None = None
        self._was_called = False
        self._corrections: dict[int, float] = {}
        """Log of how much faster drafting was than estimated, by place of the sequences."""
        self._found: float | None = None
        """Log of how much faster drafting was in a trial that has just ended."""
        self._rulings, self._calls, self._is_clear = 0, 0, True
        """Rulings and calls in vain, and whether the last ruling, if any, was clear."""
        self._pairs = 1
        """Of the last trial."""
        self._earned_ms = self._due_ms = 0.0
        """What steps have taken since the last trial, and when the next one is due."""

    @property
    def is_drafting(self) -> bool:
        """Whether draft rounds are usual."""
        return self._mode.is_drafting

    @property
    def is_tried(self) -> bool:
        """Whether a trial is under way."""
        return self._trial is not None

    @property
    def tries_other(self) -> bool:
        """Whether the next steps are to be of the other way."""
        return self._trial is not None and self._trial.tries_other

    @property
    def is_known(self) -> bool:
        """Whether steps of the usual way were timed."""
        return self._pace.is_known

    @property
    def is_due(self) -> bool:
        """Whether there is something to be decided before the next comparison."""
        return self.is_tried or self._earned_ms >= self._due_ms

    def took(self, times: StepTimes, *, is_fair: bool) -> None:
        """Take a step.

        Args:
            times: of the step.
            is_fair: it is like other steps of its size and way.
        """
        sequences, step_ms = times.sequences, 1e3 * times.step_s
        self._earned_ms += step_ms
        verifies = times.rows > sequences
        # A round without drafts before it, or the other way round, leads from one way to the other.
        is_usual = None if verifies != times.drafted else verifies == self._mode.is_drafting
        step = times.rows, times.tokens or sequences, step_ms if is_fair else None
        trial = self._trial
        if trial is not None:
            is_other = None if is_usual is None else not is_usual
            trial.add(sequences, *step, is_other=is_other)
            if trial.is_over:
                self._end(trial)
        elif is_usual:
            if not self._pace.is_of(sequences):
                self._pace = Pace(sequences)
            self._pace.add(*step)

    def choose(
        self, best: Total, costs: StepCosts, sequences: int, *, other_rows: int, steps: int
    ) -> None:
        """Compare estimates, and begin a trial if one is due or called for.

        Args:
            best: what drafting promises.
            costs: what ``best`` was chosen with.
            sequences: that decode.
            other_rows: rows of prompts in the same step.
            steps: since the last comparison.
        """
        if self._trial is not None:
            return
        place = costs.curve.place(sequences)
        if self._found is not None:
            estimated = lead(best, costs, sequences).ratio
            self._corrections[place], self._found = self._found - log(estimated), None
        correction = exp(self._nearest_correction(place))
        found = lead(best, costs, sequences, other_rows=other_rows, correction=correction)
        self._mode = next_mode(self._mode, found, steps=steps)
        if other_rows:  # steps with rows of prompts are not timed
            if is_lost(self._mode, costs):
                self._use(is_drafting=not self._mode.is_drafting)
            return
        price_ms = self._price_ms(found, costs)
        most = _MOST_IF_DRAFTING if self._mode.is_drafting else _MOST_IF_NOT
        self._due_ms = distance(self._rulings, most=most) * price_ms
        self._was_called = is_called(self._mode, costs) and (
            (self._is_clear and not self._calls)
            or self._earned_ms >= distance(self._calls + _CALLS_IN_VAIN, most=most) * price_ms
        )
        is_wanted = self._was_called or self._earned_ms >= self._due_ms
        if is_wanted and self._pace.is_known and self._pace.is_of(sequences):
            self._trial = Trial(self._pace)

    def _price_ms(self, found: Lead, costs: StepCosts) -> float:
        """What a trial costs: time in which the usual way would have given more tokens."""
        lost_ms = found.plain_ms if self._mode.is_drafting else found.drafting_ms
        return self._pairs * (_TRIAL_STEPS * max(lost_ms, 0.0) + costs.drafter_ms)

    def _nearest_correction(self, place: int) -> float:
        known = self._corrections
        return known[min(known, key=lambda one: abs(one - place))] if known else 0.0

    def _end(self, trial: Trial) -> None:
        self._trial, has_won = None, bool(trial.has_won)
        self._pairs = max(len(trial.pairs), 1)
        if trial.pairs:
            self._found = -trial.mean if self._mode.is_drafting else trial.mean
        self._is_clear = bool(trial.pairs) and abs(trial.mean) >= CLEAR
        most = _MOST_IF_DRAFTING.bit_length()
        self._rulings = most if self._is_clear else min(self._rulings + 1, most)
        if has_won:
            self._calls = 0
        elif self._was_called:
            self._calls = min(self._calls + 1, most)
        self._use(is_drafting=self._mode.is_drafting != has_won)

    def _use(self, *, is_drafting: bool) -> None:
        if is_drafting != self._mode.is_drafting:
            self._pace = Pace()
        self._mode, self._earned_ms = DraftingMode(is_drafting), 0.0
        self._present.settle(is_drafting=is_drafting)
