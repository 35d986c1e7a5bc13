"""How many drafts of each sequence does a step verify, and is the next draft round worth its time?

The decisions are those of ``deepinfer_core.schedule.speculation``; here is the memory that they
need between steps: what steps took lately, how well drafts survived so far and against what was
expected, and whether drafting pays at present.

Nothing is learned about what is not done, so where drafting pays a few steps without drafts are
tried, and where it does not, a few with them. A trial is due when its price was earned 256 times,
so together they take less than a hundredth of the time; 8 times, where no step without drafts was
timed yet. The first step of another kind is not timed: it may have to be recorded, and finds other
things in the processor's caches.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepinfer_core.interfaces.draft_planner import (
    DraftOutcome,
    DraftPlanner,
    DraftView,
    StepTimes,
)
from deepinfer_core.schedule.speculation import (
    Total,
    budget_rates,
    choose_total,
    split,
    survival,
)
from deepinfer_core.schedule.speculation_bias import SurvivalBias
from deepinfer_core.schedule.speculation_costs import StepCosts
from deepinfer_core.schedule.speculation_mode import DraftingMode, next_mode
from deepinfer_core.schedule.speculation_prior import MeanSurvival

from deepinfer_dspark.costs import PresentCosts
from deepinfer_dspark.measuring import MeasuredCosts

__all__ = ["DsparkPlanner"]

_TRIAL_STEPS = 4
_PRICES_BETWEEN_TRIALS = 256
_PRICES_BEFORE_FIRST_TRIALS = 8

_STEPS_BETWEEN_COMPARISONS = 16
"""While nobody has drafts: only costs can change what is best, and they change slowly."""


class DsparkPlanner(DraftPlanner):
    """Plans by confidences and costs.

    Args:
        measured: what steps and draft rounds take.
        drafts: of a round.
    """

    def __init__(self, measured: MeasuredCosts, drafts: int) -> None:
        self._present = PresentCosts(measured)
        self._mean = MeanSurvival(drafts)
        self._bias = SurvivalBias(drafts)
        self._mode = DraftingMode()
        self._trial = 0
        """Steps that are still to be run in the other way than the mode's."""
        self._same_ms = 0.0
        """What steps have taken since the last trial or change of mode, and when one is tried."""
        self._trial_ms = 0.0
        self._load = (0, 0)
        """Sequences and other rows at the last comparison, and then how long a step took."""
        self._step_ms = 0.0
        self._passed = 0
        """Steps since."""
        self._verifies = False
        """Whether the rows given last are of drafts, too; and whether the step timed last was."""
        self._timed_drafts = True

    def rows(self, views: Sequence[DraftView], *, other_rows: int) -> Sequence[int]:
        """Say how many rows each sequence feeds; see the interface."""
        load = (len(views), other_rows)
        self._verifies = False
        if load == self._load and self._is_idle(views):
            self._passed += 1
            self._same_ms += self._step_ms
            return (1,) * len(views)
        given = self._planned(views, other_rows)
        self._load, self._passed = load, 0
        return given

    def drafts_next(self) -> bool:
        """Whether drafting pays, or is tried; behind the last step of a trial its mode goes on."""
        return self._mode.is_drafting != (self._trial > 1)

    def shares(self) -> tuple[float, ...] | None:
        """The device may share out rows by newer confidences, corrected as here."""
        return self._bias.factors if self._verifies else None

    def learn(self, outcomes: Sequence[DraftOutcome]) -> None:
        """Compare what became of drafts with what was expected."""
        for one in outcomes:
            self._bias.add(survival(one.confidences), one.verified, one.accepted)

    def took(self, times: StepTimes) -> None:
        """Take the times of one step."""
        has_drafts = times.rows > times.sequences
        if has_drafts == self._timed_drafts:
            self._present.add(times)
        self._timed_drafts = has_drafts

    def _is_idle(self, views: Sequence[DraftView]) -> bool:
        """Whether nothing is to be decided."""
        if self._mode.is_drafting or self._trial or any(one.drafts for one in views):
            return False
        return self._passed + 1 < _STEPS_BETWEEN_COMPARISONS and self._same_ms < self._trial_ms

    def _planned(self, views: Sequence[DraftView], other_rows: int) -> Sequence[int]:
        sequences, prior = len(views), self._bias.corrected(self._mean.rates)
        costs = self._present.of(sequences)
        trusted = [self._corrected(view) if view.drafts else view for view in views]
        rates = [budget_rates(view, prior) if view.drafts else () for view in trusted]
        best = choose_total(rates, costs, other_rows=other_rows)
        promised = best
        if not all(rates):
            # Whoever has no drafts now would have ordinary ones.
            promised = choose_total([each or prior for each in rates], costs, other_rows=other_rows)
        was_drafting = self._mode.is_drafting
        self._mode = next_mode(
            self._mode, promised, costs, sequences, other_rows=other_rows, steps=self._passed + 1
        )
        round_ms = 0.0 if self._mode.is_drafting else costs.drafter_ms
        self._step_ms = best.step_ms - round_ms
        if self._mode.is_drafting != was_drafting:
            self._trial, self._same_ms = 0, 0.0
        self._count(promised, costs, sequences, other_rows)
        # Only now: what a step is planned with must not depend on its own blocks.
        self._learn_blocks([v.newest for v in views if v.drafts and v.newest is not None])
        tries_plain = self._mode.is_drafting and self._trial > 0
        if tries_plain or best.rows == sequences:
            return (1,) * sequences
        self._verifies = True
        return split(trusted, best.rows, prior)

    def _corrected(self, view: DraftView) -> DraftView:
        newest, before = view.newest, view.before
        return view._replace(
            newest=None if newest is None else self._bias.corrected(newest),
            before=None if before is None else self._bias.corrected(before),
        )

    def _learn_blocks(self, blocks: Sequence[Sequence[float]]) -> None:
        for block in blocks:
            self._mean.add_rates(block)
        self._bias.fade(len(blocks))

    def _count(self, best: Total, costs: StepCosts, sequences: int, other_rows: int) -> None:
        """Count down a trial, or see whether one is due."""
        if self._trial:
            self._trial -= 1
        if self._trial or other_rows:
            return  # steps with rows of prompts are not timed
        price_ms, prices = _TRIAL_STEPS * costs.drafter_ms, _PRICES_BETWEEN_TRIALS
        if self._mode.is_drafting:
            lost_ms = costs.plain_ms(sequences) - sequences / best.tokens_per_ms
            price_ms = _TRIAL_STEPS * max(lost_ms, 0.0) + costs.drafter_ms
            if not self._present.knows(sequences):
                prices = _PRICES_BEFORE_FIRST_TRIALS
        self._trial_ms = prices * price_ms
        if self._same_ms < self._trial_ms:
            self._same_ms += self._step_ms
        else:
            self._trial, self._same_ms = _TRIAL_STEPS, 0.0
