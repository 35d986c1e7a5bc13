"""How likely is the best draft of a step to be accepted, the second best, and so on?

A total is chosen by what the best drafts promise together. The blocks of one step promise more or
less than usual by chance, and those that they are taken to speak for, the next ones, do not: where
two totals are nearly as good, planning by the last blocks alone often takes the worse of them. So
drafts are ranked, and the ranks of the last few steps are averaged. Which draft has which rank is
not asked: the split looks at the newest blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["MeanRanking"]

_NEWEST_SHARE = 1 / 4
"""Of the latest step in the mean: the last four make two thirds of it."""


class MeanRanking:
    """Running mean of survival by rank."""

    def __init__(self) -> None:
        self._mean: list[float] = []

    def add(self, rates: Sequence[Iterable[float]]) -> Sequence[float]:
        """Take the estimates of one step.

        Args:
            rates: survival by draft of each sequence.

        Returns:
            The mean for as many drafts as it has, highest first. Where there were more or fewer
            before, a draft follows the one that was as far down among them.
        """
        newest = sorted((rate for each in rates for rate in each), reverse=True)
        known, count = self._mean, len(newest)
        if known and len(known) != count:
            known = [known[(2 * place + 1) * len(known) // (2 * count)] for place in range(count)]
        if known:
            pairs = zip(known, newest, strict=True)
            self._mean = [old + _NEWEST_SHARE * (new - old) for old, new in pairs]
        elif newest:
            self._mean = newest
        return self._mean if newest else ()
