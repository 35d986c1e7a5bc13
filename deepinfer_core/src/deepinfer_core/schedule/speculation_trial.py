"""Which of two ways of decoding gives more tokens in the same time, by turns of a few steps each?

Only what was timed counts here, and the tokens that came, so no estimate can be wrong. A machine is
slower or faster from one second to the next, so what is compared lies side by side: a *pair* is a
few steps of the *other* way between few of the *usual* one; where these two differ clearly, the
machine or the texts changed meanwhile, and nothing is said. Single steps are disturbed, by a
collection of garbage or another program, and that only ever makes them slower: of each few the
faster half counts.

A pair has an error of some hundredths. So a clear one decides at once, and a doubtful one is
followed by others while the other way seems to be faster, four at most, whose mean decides. What a
wrong ruling costs is what the ways differ by, and it is only likely where that is little;
``distance`` says how soon it is looked at again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import log
from statistics import fmean

__all__ = ["CLEAR", "Pace", "Trial", "distance", "ruling"]

_RECENT_STEPS = 9
_ENOUGH_STEPS = 4
"""Of one way for a pair: two of them may be disturbed."""

_MOST_STEPS = 16
"""Of one way without enough that were timed: prompts are in all of them, or texts come and go."""

_ALIKE_SEQUENCES = 1 / 8
"""By which part the number of sequences may change within a trial."""

_SURE = (0.1, 0.07, 0.06, 0.0)
"""How far the mean of one pair, of two and so on must be above 0 for the other way to win: two
standard deviations where a pair has 0.05. The last one decides in any case."""

_SURELY_NOT = (-0.1, 0.0, 0.0, 0.0)
"""And where it is not asked further: who does not seem to win by two pairs is not worth a third."""

CLEAR = 0.2
"""Log ratio, four standard deviations of a pair, that nobody doubts."""

_NEAREST = 16
"""Prices of a trial that are earned before the first one; four times as many before the next."""


class Pace:
    """How fast one way of decoding was in its last steps: tokens over milliseconds.

    Args:
        sequences: that decode.
    """

    def __init__(self, sequences: int = 0) -> None:
        self.sequences = sequences
        self._steps = deque[tuple[int, int, float | None]](maxlen=_RECENT_STEPS)

    def add(self, rows: int, tokens: int, step_ms: float | None) -> None:
        """Take a step.

        Args:
            rows: of it.
            tokens: that it gave.
            step_ms: what it took, its draft round too; None: the clock was not fair to it, as it
                may have been recorded, or is the first of its way.
        """
        self._steps.append((rows, tokens, step_ms))

    def is_of(self, sequences: int) -> bool:
        """Whether so many are as good as those that it was begun with."""
        return abs(sequences - self.sequences) <= _ALIKE_SEQUENCES * self.sequences

    @property
    def is_known(self) -> bool:
        """Whether enough steps were timed."""
        return sum([step_ms is not None for _, _, step_ms in self._steps]) >= _ENOUGH_STEPS

    @property
    def tokens_per_ms(self) -> float:
        """Speed; it must be known. Steps of a size that was not timed do not count."""
        times_ms: dict[int, list[float]] = {}
        for rows, _, step_ms in self._steps:
            if step_ms is not None:
                times_ms.setdefault(rows, []).append(step_ms)
        usual_ms = {rows: _undisturbed(found) for rows, found in times_ms.items()}
        counted = [(tokens, usual_ms[rows]) for rows, tokens, _ in self._steps if rows in usual_ms]
        return sum([one[0] for one in counted]) / sum([one[1] for one in counted])


class Trial:
    """A few pairs.

    Args:
        before: the usual way in the steps just before; known.

    Attributes:
        tries_other: whether the next steps are to be of the other way.
        pairs: log of how much faster the other way was, in each.
        has_won: whether the other way is faster; None: that is not known yet.
        is_over: it is known, or could not be: too few steps could be timed.
    """

    def __init__(self, before: Pace) -> None:
        self._before = before
        self._other, self._after = Pace(before.sequences), Pace(before.sequences)
        self._steps = self._tries = 0
        self.tries_other = True
        self.pairs: list[float] = []
        self.has_won: bool | None = None
        self.is_over = False

    @property
    def mean(self) -> float:
        """Of the pairs, of which there must be one."""
        return fmean(self.pairs)

    def add(
        self,
        sequences: int,
        rows: int,
        tokens: int,
        step_ms: float | None,
        *,
        is_other: bool | None,
    ) -> None:
        """Take a step.

        Args:
            sequences: that decoded in it.
            rows: see ``Pace.add``.
            tokens: see ``Pace.add``.
            step_ms: see ``Pace.add``.
            is_other: which way it was; None: it led from one to the other.
        """
        pace = self._other if self.tries_other else self._after
        self._steps += 1
        if is_other == self.tries_other and pace.is_of(sequences):
            pace.add(rows, tokens, step_ms)
        if not pace.is_known:
            self.is_over = self._steps >= _MOST_STEPS
            return
        self._steps = 0
        self.tries_other = not self.tries_other
        if not self.tries_other:
            return
        self._tries += 1
        before, after = log(self._before.tokens_per_ms), log(self._after.tokens_per_ms)
        if abs(after - before) < CLEAR:
            self.pairs.append(log(self._other.tokens_per_ms) - (before + after) / 2)
            self.has_won = ruling(self.pairs)
        self.is_over = self.has_won is not None or self._tries >= len(_SURE)
        self._before = self._after
        self._other, self._after = Pace(pace.sequences), Pace(pace.sequences)


def _undisturbed(times_ms: Sequence[float]) -> float:
    ordered = sorted(times_ms)
    return fmean(ordered[: (len(ordered) + 1) // 2])


def ruling(pairs: Sequence[float]) -> bool | None:
    """Whether the other way is faster.

    Args:
        pairs: log of how much faster it was in each.

    Returns:
        None: another pair is needed.
    """
    mean, last = fmean(pairs), len(pairs) - 1
    return True if mean > _SURE[last] else False if mean <= _SURELY_NOT[last] else None


def distance(rulings: int, *, most: int) -> int:
    """How often a trial's price must be earned until the next one: 16, 64, 128 times and so on.

    Args:
        rulings: so far.
        most: what is doubled up to; a power of two.
    """
    return min(_NEAREST << min(rulings + (rulings > 0), most.bit_length()), most)
