"""How many drafts of each sequence does a step verify, and is the next draft round worth its time?

The decisions are those of ``deepinfer_core.schedule.speculation``; here is the memory that they
need between steps: what steps took lately, how well drafts survived so far and against what was
expected, and whether drafting pays at present.

Nothing is learned about what is not done, so where drafting pays a few steps without drafts are
tried, and where it does not, a few with them. A trial is due when its price was earned 256 times,
so trials take less than half a hundredth of the time; only the first two come sooner, after 8 and
64 times, if drafting has paid until then. Where it goes on paying a trial is due after 1024 times:
what becomes of drafts is seen all the time, and a trial only shows what a step without takes. If
that is not what was believed, a trial was disturbed, or something changed: the next one comes soon.
The first two steps of another kind are not timed: they may have to be recorded, and find other
things in the processor's caches. Nor are the first two of a size.

Nor is anything learned about sizes that are not run. So while one was not timed it is taken to be
somewhat faster than it seems, and run if that makes it the best.

The measured curve knows little of the host's work, so drafting is not given up by its word: steps
that verify something are run until they were timed, and if drafting seems to lose before steps
without were, those are tried at once, and counting begins anew. A mode is not left within a trial.

Where drafting does not pay, and no trial is due, steps are those of an engine without a drafter,
all but one in 16 (``rest``).
"""

from __future__ import annotations

from collections import Counter
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
from deepinfer_core.schedule.speculation_mode import DraftingMode, next_mode, wants_change
from deepinfer_core.schedule.speculation_prior import MeanSurvival
from deepinfer_core.schedule.speculation_ranking import MeanRanking

from deepinfer_dspark.costs import PresentCosts
from deepinfer_dspark.measuring import MeasuredCosts

__all__ = ["DsparkPlanner"]

_TRIAL_STEPS = 5
_UNTIMED_STEPS = 2
_PRICES = (8, 64, 256, 1024)
_LAST_IF_NOT_DRAFTING = 2
"""Place of the price that trials of drafts end with, and those that show something new."""

_ALIKE = 0.03
"""How far a trial may move what was believed and be no news; it is three of nine times."""

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
        self._mode = DraftingMode()
        self._trial = 0
        """Steps that are still to be run in the other way than the mode's."""
        self._trials = 0
        """How many there were, counted up to the last of ``_PRICES``."""
        self._are_timed = False
        """Whether steps with drafts and without both were."""
        self._believed_ms: float | None = None
        """What a step without drafts was believed to take when the trial began that is run."""
        self._runs: Counter[tuple[int, bool]] = Counter()
        """Steps of so many rows, with or without drafts, up to those that are not timed."""
        self._same_ms = 0.0
        """What steps have taken since the last trial or change of mode, and when one is tried."""
        self._trial_ms = 0.0
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
        self._passed += 1
        self._same_ms += 1e3 * times.step_s
        has_drafts = times.rows > times.sequences
        self._alike = self._alike + 1 if has_drafts == self._timed_drafts else 0
        self._timed_drafts = has_drafts
        size = times.rows, has_drafts
        if self._runs[size] < _UNTIMED_STEPS:
            self._runs[size] += 1
        elif self._alike >= _UNTIMED_STEPS:
            self._present.add(times)

    def _may_rest(self) -> bool:
        """Whether nothing is to be decided where nobody has drafts."""
        if self._mode.is_drafting or self._trial:
            return False
        return self._passed < _STEPS_BETWEEN_COMPARISONS and self._same_ms < self._trial_ms

    def _may_repeat(self, views: Sequence[DraftView]) -> bool:
        """Whether all drafts are verified once more, and nothing is to be decided."""
        is_early = self._passed < _STEPS_VERIFYING_ALL and self._same_ms < self._trial_ms
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
        self._choose_mode(promised, costs, sequences, other_rows)
        # Only now: what a step is planned with must not depend on its own blocks.
        self._learn_blocks([v.newest for v in views if v.drafts and v.newest is not None])
        tries_drafts = self._tries_drafts(other_rows)
        drafts, before = [view.drafts for view in views], self._chosen
        self._chosen = self._repeated = None
        if not any(rates) or (self._trial and not tries_drafts):
            return (1,) * sequences
        best = choose_total(
            rates,
            self._present.hopeful(costs, sequences),
            other_rows=other_rows,
            least_drafts=int(tries_drafts),
            ranking=ranking if all(rates) else None,
        )
        self._verifies = best.rows > sequences
        if best.rows == sequences + sum(drafts):
            self._chosen = drafts
            if self._are_timed and self._mode.is_drafting and drafts == before:
                self._repeated = drafts
            return [1 + one for one in drafts]
        corrected = self._bias.corrected
        trusted = [v if v.newest is None else v._replace(newest=corrected(v.newest)) for v in views]
        return split(trusted, best.rows, corrected(mean))

    def _tries_drafts(self, other_rows: int) -> bool:
        """Whether drafts are verified though nothing may say that it pays."""
        if not self._mode.is_drafting:
            return self._trial > 0
        # Steps with rows of prompts are not timed.
        return not (self._trial or other_rows or self._present.are_timed(with_drafts=True))

    def _choose_mode(
        self, promised: Total, costs: StepCosts, sequences: int, other_rows: int
    ) -> None:
        self._trial = max(self._trial - 1, 0)
        if self._trial:
            return
        was_timed, was_drafting = self._are_timed, self._mode.is_drafting
        plain_is_timed = self._present.are_timed(with_drafts=False)
        self._are_timed = plain_is_timed and self._present.are_timed(with_drafts=True)
        if self._are_timed and not was_timed:
            self._mode = DraftingMode(was_drafting)  # what seemed to be lost was not known
        self._mode = next_mode(
            self._mode,
            promised,
            costs,
            sequences,
            other_rows=other_rows,
            steps=max(self._passed, 1),
            are_timed=self._are_timed,
        )
        if self._mode.is_drafting != was_drafting:
            self._same_ms, self._believed_ms = 0.0, None
            if self._are_timed:
                self._trials = _LAST_IF_NOT_DRAFTING
        if other_rows:
            return  # steps with rows of prompts are not timed
        plain_ms = costs.plain_ms(sequences)
        if self._believed_ms is not None:
            self._trials = min(self._trials + 1, len(_PRICES) - 1)
            if abs(plain_ms / self._believed_ms - 1) > _ALIKE:
                self._trials = min(self._trials, _LAST_IF_NOT_DRAFTING)
            self._believed_ms = None
        self._trial_ms = self._worth_a_trial_ms(promised, costs, sequences)
        is_doubted = not plain_is_timed and wants_change(self._mode, costs)
        if self._same_ms >= self._trial_ms or (self._mode.is_drafting and is_doubted):
            self._trial, self._same_ms, self._believed_ms = _TRIAL_STEPS, 0.0, plain_ms

    def _worth_a_trial_ms(self, promised: Total, costs: StepCosts, sequences: int) -> float:
        """What steps must have taken since the last trial before the next one."""
        plain_ms, tokens = costs.plain_ms(sequences), promised.expected_tokens / sequences
        trials = self._trials
        if self._mode.is_drafting:
            price_ms = _TRIAL_STEPS * max(plain_ms - promised.step_ms / tokens, 0.0)
        else:
            trials = min(trials, _LAST_IF_NOT_DRAFTING)
            price_ms = _TRIAL_STEPS * max(promised.step_ms - plain_ms * tokens, 0.0)
        return _PRICES[trials] * (price_ms + costs.drafter_ms)

    def _promise(self, said: Sequence[float]) -> tuple[float, ...]:
        """What the drafts of a block give, by what became of earlier ones."""
        return self._bias.expected(self._bias.corrected(said))

    def _learn_blocks(self, blocks: Sequence[Sequence[float]]) -> None:
        for block in blocks:
            self._mean.add_rates(block)
        self._bias.fade(len(blocks) * min(max(self._passed, 1), _STEPS_VERIFYING_ALL))
