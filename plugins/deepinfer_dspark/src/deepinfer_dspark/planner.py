"""How many drafts of each sequence does a step verify, and is the next draft round worth its time?

The decisions are those of ``deepinfer_core.schedule.speculation``; here is the memory that they
need between steps: what steps took lately, and how well drafts survived so far and against what was
expected. Whether drafting pays at present is decided by trials (``ways``).

The first two steps of another kind are not timed: they may have to be recorded, and find other
things in the processor's caches. Nor are the first two of a size. Nothing is learned about sizes
that are not run. So while one was not timed it is taken to be somewhat faster than it seems, and
run if that makes it the best.

Where drafting does not pay, and no trial is due, steps are those of an engine without a drafter,
all but one in 16 (``rest``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from deepinfer_core.interfaces.draft_planner import (
    DraftOutcome,
    DraftPlanner,
    DraftView,
    StepTimes,
)
from deepinfer_core.schedule.speculation import (
    budget_rates,
    choose_total,
    split,
    survival,
)
from deepinfer_core.schedule.speculation_bias import SurvivalBias
from deepinfer_core.schedule.speculation_prior import MeanSurvival
from deepinfer_core.schedule.speculation_ranking import MeanRanking

from deepinfer_dspark.costs import PresentCosts
from deepinfer_dspark.measuring import MeasuredCosts
from deepinfer_dspark.ways import Ways

__all__ = ["DsparkPlanner"]

_UNTIMED_STEPS = 2

_STEPS_BETWEEN_COMPARISONS = 16
"""While nobody has drafts: only costs and the load can change what is best."""

_STEPS_VERIFYING_ALL = 4
"""From one comparison to the next where all drafts are verified: planning costs time, too."""


class DsparkPlanner(DraftPlanner):
    """Plans by confidences and costs.

    Args:
        measured: what steps and draft rounds take.
        drafts: of a round.
    """

    def __init__(self, measured: MeasuredCosts, drafts: int) -> None:
        self._present = PresentCosts(measured)
        self._mean = MeanSurvival(drafts)
        self._ranking = MeanRanking()
        self._bias = SurvivalBias(drafts)
        self._ways = Ways(self._present)
        self._runs: Counter[tuple[int, bool]] = Counter()
        """Steps of so many rows, with or without drafts, up to those that are not timed."""
        self._passed = 0
        """Steps that ended since the last comparison of the two ways."""
        self._verifies = False
        """Whether the rows given last are of drafts, too; and whether the step timed last was."""
        self._timed_drafts = True
        self._chosen: list[int] | None = None
        """Drafts of each sequence, if all of them were chosen at the last comparison."""
        self._repeated: list[int] | None = None
        """The same if it was so twice: then they may be verified again without another."""
        self._alike = 0
        """Steps before that one, of its kind."""

    def rows(self, views: Sequence[DraftView], *, other_rows: int) -> Sequence[int]:
        """Say how many rows each sequence feeds; see the interface."""
        self._verifies = False
        if self._may_rest() and not any(one.drafts for one in views):
            return (1,) * len(views)
        if not (other_rows == 0 and self._may_repeat(views)):
            given = self._planned(views, other_rows)
            self._passed = 0
            return given
        self._verifies = True
        return [1 + one.drafts for one in views]

    def rest(self) -> int:
        """None are planned until the next comparison; a trial that is due then waits for it."""
        return _STEPS_BETWEEN_COMPARISONS - 1 - self._passed if self._may_rest() else 0

    def drafts_next(self) -> bool:
        """Whether drafting pays, or is tried."""
        return self._ways.is_drafting != self._ways.tries_other

    def shares(self) -> tuple[float, ...] | None:
        """The device may share out rows by newer confidences, corrected as here."""
        return self._bias.factors if self._verifies else None

    def learn(self, outcomes: Sequence[DraftOutcome]) -> None:
        """Compare what became of drafts with what was expected."""
        for one in outcomes:
            self._bias.add(survival(one.confidences), one.verified, one.accepted)

    def took(self, times: StepTimes) -> None:
        """Take the times of one step."""
        self._passed += 1
        has_drafts = times.rows > times.sequences
        self._alike = self._alike + 1 if has_drafts == self._timed_drafts else 0
        self._timed_drafts = has_drafts
        size = times.rows, has_drafts
        is_fair = self._runs[size] >= _UNTIMED_STEPS and self._alike >= _UNTIMED_STEPS
        if self._runs[size] < _UNTIMED_STEPS:
            self._runs[size] += 1
        if is_fair:
            self._present.add(times)
        self._ways.took(times, is_fair=is_fair)

    def _may_rest(self) -> bool:
        """Whether nothing is to be decided where nobody has drafts."""
        ways, is_early = self._ways, self._passed < _STEPS_BETWEEN_COMPARISONS
        return is_early and not (ways.is_drafting or ways.is_due)

    def _may_repeat(self, views: Sequence[DraftView]) -> bool:
        """Whether all drafts are verified once more, and nothing is to be decided."""
        is_early = self._passed < _STEPS_VERIFYING_ALL and not self._ways.is_due
        return is_early and self._repeated == [one.drafts for one in views]

    def _planned(self, views: Sequence[DraftView], other_rows: int) -> Sequence[int]:
        sequences, mean = len(views), self._mean.rates
        costs, promise = self._present.of(sequences), self._promise
        rates = [promise(budget_rates(view, mean)) if view.drafts else () for view in views]
        # Whoever has no drafts now would have ordinary ones.
        ordinary = promise(mean)
        usual = [each or ordinary for each in rates]
        # Before the first block all estimates are 1; that is no part of a mean.
        ranking = self._ranking.add(usual) if self._mean.is_known else None
        promised = choose_total(
            usual, costs, other_rows=other_rows, least_drafts=1, ranking=ranking
        )
        ways, was_tried = self._ways, self._ways.is_tried
        ways.choose(promised, costs, sequences, other_rows=other_rows, steps=max(self._passed, 1))
        if ways.is_tried and not was_tried and not ways.is_drafting:
            # What drafts were worth is not known any more; a step or two will tell.
            self._bias = SurvivalBias(len(mean))
        # Only now: what a step is planned with must not depend on its own blocks.
        self._learn_blocks([v.newest for v in views if v.drafts and v.newest is not None])
        is_drafting = self.drafts_next()
        drafts, before = [view.drafts for view in views], self._chosen
        self._chosen = self._repeated = None
        if not any(rates):
            return (1,) * sequences
        # What a round is run for is verified, or nobody would see what drafts are worth.
        is_asked = is_drafting and not other_rows
        if not ways.is_tried:
            costs = self._present.hopeful(costs, sequences)
        if not is_drafting:
            costs = replace(costs, drafter_ms=0.0)  # drafts are left, and no round is paid for them
        best = choose_total(
            rates,
            costs,
            other_rows=other_rows,
            least_drafts=int(is_asked),
            ranking=ranking if all(rates) else None,
        )
        self._verifies = best.rows > sequences
        if best.rows == sequences + sum(drafts):
            self._chosen = drafts
            if ways.is_known and ways.is_drafting and drafts == before:
                self._repeated = drafts
            return [1 + one for one in drafts]
        corrected = self._bias.corrected
        trusted = [v if v.newest is None else v._replace(newest=corrected(v.newest)) for v in views]
        return split(trusted, best.rows, corrected(mean))

    def _promise(self, said: Sequence[float]) -> tuple[float, ...]:
        """What the drafts of a block give, by what became of earlier ones."""
        return self._bias.expected(self._bias.corrected(said))

    def _learn_blocks(self, blocks: Sequence[Sequence[float]]) -> None:
        for block in blocks:
            self._mean.add_rates(block)
        self._bias.fade(len(blocks) * min(max(self._passed, 1), _STEPS_VERIFYING_ALL))
