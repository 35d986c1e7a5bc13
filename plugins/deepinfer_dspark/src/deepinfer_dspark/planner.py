"""How many drafts of each sequence does a step verify, and is the next draft round worth its time?

The decisions are those of ``deepinfer_core.schedule.speculation``; here is the memory that they
need between steps: what steps took lately, how well drafts survived so far and against what was
expected, and whether drafting pays at present.

Nothing is learned about what is not done, so either is tried while the other is done:

* Steps without drafts, where drafting pays. One such step emits less than the time it takes is
  worth, and wastes the drafts at hand; it is run when drafting has lasted 256 times as long as what
  it loses. Where no step of that size was timed yet, 8 times.
* A round, where drafting does not pay: when steps without drafts have lasted 256 times as long.

Together that is less than a hundredth of the time.
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

_ROUNDS_BETWEEN_TRIALS = 256
_LOSSES_BETWEEN_PLAIN_STEPS = 256
_LOSSES_BEFORE_FIRST_PLAIN_STEPS = 8

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
        self._plain_ms = 0.0
        """What steps have taken since the last draft round, and when one is tried."""
        self._trial_ms = 0.0
        self._drafting_ms = 0.0
        """What steps have taken since the last one that verified no drafts."""
        self._load = (0, 0)
        """Sequences and other rows at the last comparison, and then how long a step took."""
        self._step_ms = 0.0
        self._passed = 0
        """Steps since."""
        self._verifies = False
        """Whether the rows given last are of drafts, too."""

    def rows(self, views: Sequence[DraftView], *, other_rows: int) -> Sequence[int]:
        """Say how many rows each sequence feeds; see the interface."""
        load = (len(views), other_rows)
        self._verifies = False
        if load == self._load and self._is_idle(views):
            self._passed += 1
            self._plain_ms += self._step_ms
            return (1,) * len(views)
        given = self._planned(views, other_rows)
        self._load, self._passed = load, 0
        return given

    def drafts_next(self) -> bool:
        """Whether drafting pays, or is tried."""
        return self._plain_ms == 0.0

    def shares(self) -> tuple[float, ...] | None:
        """The device may share out rows by newer confidences, corrected as here."""
        return self._bias.factors if self._verifies else None

    def learn(self, outcomes: Sequence[DraftOutcome]) -> None:
        """Compare what became of drafts with what was expected."""
        for one in outcomes:
            self._bias.add(survival(one.confidences), one.verified, one.accepted)

    def took(self, times: StepTimes) -> None:
        """Take the times of one step."""
        self._present.add(times)

    def _is_idle(self, views: Sequence[DraftView]) -> bool:
        """Whether nothing is to be decided."""
        is_soon = self._passed + 1 < _STEPS_BETWEEN_COMPARISONS and self._plain_ms < self._trial_ms
        return is_soon and not self._mode.is_drafting and not any(one.drafts for one in views)

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
        self._mode = next_mode(
            self._mode, promised, costs, sequences, other_rows=other_rows, steps=self._passed + 1
        )
        self._step_ms = best.step_ms - costs.drafter_ms
        self._count_plain(costs.drafter_ms)
        tries_plain = self._tries_plain(best, costs, sequences, other_rows)
        # Only now: what a step is planned with must not depend on its own blocks.
        self._learn_blocks([v.newest for v in views if v.drafts and v.newest is not None])
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

    def _count_plain(self, round_ms: float) -> None:
        """Begin anew where a round is run behind this step: always, or to try."""
        self._trial_ms = _ROUNDS_BETWEEN_TRIALS * round_ms
        is_due = self._plain_ms >= self._trial_ms
        self._plain_ms = 0.0 if self._mode.is_drafting or is_due else self._plain_ms + self._step_ms

    def _tries_plain(self, best: Total, costs: StepCosts, sequences: int, other_rows: int) -> bool:
        """Whether this step is to show what steps take that verify nothing."""
        if not self._mode.is_drafting or best.rows == sequences:
            self._drafting_ms = 0.0
            return False
        plain_rows = sequences + other_rows
        losses = _LOSSES_BETWEEN_PLAIN_STEPS
        if not self._present.knows(plain_rows):
            losses = _LOSSES_BEFORE_FIRST_PLAIN_STEPS
        lost_ms = costs.drafting_ms(plain_rows) - sequences / best.tokens_per_ms
        is_due = self._drafting_ms >= losses * max(lost_ms, costs.drafter_ms)
        self._drafting_ms = 0.0 if is_due else self._drafting_ms + best.step_ms
        return is_due
