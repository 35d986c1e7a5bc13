"""How many rows does a step verify, and which sequences get them?

Two decisions. The *total* is chosen first, so that expected tokens per millisecond are highest on
the cost curve of the step; the curve is a staircase, so every total up to the largest is looked at.
Then the rows are *split*: the drafts most likely to be reached and accepted get them. A draft's
estimate is its *survival*: the product of the confidences up to its own, so it never rises along a
block, and what a sequence wins are always the first of its drafts.

What may be looked at is a matter of correctness under the ratio rule of acceptance. Confidences
depend on the drafts that were drawn; if whether draft j is verified depended on the confidences of
j + 1 and following, the law of the emitted tokens would change (one sequence, two drafts: verify
both if the second looks good, else none). The total looks at all confidences at once, so it must
not see those of the block that it is for: it uses those of the block before. The split may use the
newest, because for a given total the place of draft j among all is not changed by what is behind it
in its own block. Under the match rule the emitted tokens depend on no draft at all.

Source: DSpark of DeepSeek-V4.1-Flash; the stopping condition and its counter-example are of the
DSpark paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, islice, repeat
from operator import mul
from typing import NamedTuple

from deepinfer_core.interfaces.draft_planner import DraftView
from deepinfer_core.schedule.speculation_costs import StepCosts

__all__ = ["Total", "budget_rates", "choose_total", "split", "survival"]


class Total(NamedTuple):
    """A number of rows and what is expected of it.

    Attributes:
        rows: of all decoding sequences together.
        expected_tokens: emitted by the step, in the mean.
        step_ms: what the step takes.
    """

    rows: int
    expected_tokens: float
    step_ms: float

    @property
    def tokens_per_ms(self) -> float:
        """Expected speed."""
        return self.expected_tokens / self.step_ms


def survival(confidences: Iterable[float]) -> tuple[float, ...]:
    """Turn the confidences of a block into the probabilities that its drafts are accepted."""
    return tuple(accumulate(confidences, mul))


def budget_rates(view: DraftView, prior: Sequence[float] = ()) -> tuple[float, ...]:
    """Rates of a sequence's drafts that the total may depend on: not those of the current block.

    Args:
        view: the sequence.
        prior: what stands for the rate of a draft that exists but has none. Where it ends too, 1.
    """
    return _filled(view.before if view.is_current else view.newest, view.drafts, prior)


def choose_total(
    rates: Sequence[Sequence[float]],
    costs: StepCosts,
    *,
    other_rows: int = 0,
    least_drafts: int = 0,
    ranking: Sequence[float] | None = None,
) -> Total:
    """Choose how many rows the decoding sequences get together.

    Args:
        rates: survival by draft of each sequence that decodes; see ``budget_rates``.
        costs: what a step takes.
        other_rows: rows of prompts in the same step.
        least_drafts: so many are verified in any case, if there are as many.
        ranking: survival of all drafts, highest first, as ``MeanRanking`` has it; None: ``rates``.

    Returns:
        The total of highest expected speed, the smallest of equal ones. At least one row a
        sequence; beyond what is asked for, no row that is certain to be rejected, and none that
        would make the step larger than any that was measured.
    """
    sequences = len(rates)
    if ranking is None:
        ranking = sorted(chain.from_iterable(rates), reverse=True)
    useful = len(ranking)
    while useful and ranking[useful - 1] <= 0:
        useful -= 1
    expected = list(accumulate(ranking, initial=float(sequences)))
    # Between two edges of the staircase more rows cost nothing, so only edges can be best.
    best: Total | None = None
    fewest = sequences + other_rows + min(least_drafts, useful)
    for last_row in costs.edges(fewest, sequences + other_rows + useful):
        rows = last_row - other_rows
        tokens = expected[rows - sequences]
        found = Total(rows, tokens, costs.drafting_ms(last_row))
        if best is None or found.tokens_per_ms > best.tokens_per_ms:
            best = found
    assert best is not None
    return best


def split(views: Sequence[DraftView], total: int, prior: Sequence[float] = ()) -> tuple[int, ...]:
    """Share out a total.

    Args:
        views: the sequences.
        total: from one row a sequence up to one more than its drafts for each.
        prior: as in ``budget_rates``.

    Returns:
        Rows by sequence: 1, and one for each of its drafts among the ``total - len(views)`` of
        highest survival. Of equal ones the earlier sequence's, then the earlier draft.

    Raises:
        ValueError: the total is outside what the sequences can take.
    """
    most = len(views) + sum(view.drafts for view in views)
    if not len(views) <= total <= most:
        raise ValueError(f"asked for {total} rows, found room for {len(views)} to {most}")
    owners: list[int] = []
    rates: list[float] = []
    for number, view in enumerate(views):
        owners += repeat(number, view.drafts)
        rates += _filled(view.newest, view.drafts, prior)
    rows = [1] * len(views)
    # Sorting is stable in reverse too: equal rates keep their order.
    ranked = sorted(range(len(rates)), key=rates.__getitem__, reverse=True)
    for place in islice(ranked, total - len(views)):
        rows[owners[place]] += 1
    return tuple(rows)


def _filled(
    known: Sequence[float] | None, drafts: int, prior: Sequence[float]
) -> tuple[float, ...]:
    """Rates of all drafts, never rising: a draft is not reached where one before it is not."""
    rates = (*(known or ()), *prior[len(known or ()) :])[:drafts]
    return tuple(accumulate((*rates, *repeat(1.0, drafts - len(rates))), min))
