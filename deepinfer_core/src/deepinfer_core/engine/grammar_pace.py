"""Whose grammar holds up the step loop?

What an engine needs for a token depends on the grammar and on the text so far: an ambiguous grammar
takes longer the longer the text is. All of it happens in the step loop, where nothing can be
stopped, and everybody waits. So all grammars of a step have one budget together: what is usual for
each row, and a part of what the rest of the step takes.

The clock on the wall says, at next to no cost, that a step passed its budget; in the next one each
token is timed alone, by the processor time of the thread, as a busy machine is nobody's fault. If
what is usual for its rows may have been all of it, one in 17 steps is, and speaks for all. What
is over the budget is charged to those who took most: as if each had been cut down to one and the
same time, so that the cut ones and the others together keep the budget. Whom that adds up for
fails, one a step, since the others may do with what it leaves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from deepinfer_core.engine.grammar_constraint import Constraint
from deepinfer_core.errors import UnsupportedGrammar

__all__ = ["ALONE_S", "EXCESS_S", "LEAST_S", "LONG_S", "MASK_S", "Pace"]

LONG_S = 0.25
"""For following or masking one token."""

MASK_S = 0.0025
"""Of one row, which is never charged: llguidance takes 0.0023 s with 129,280 tokens."""

SHARE = 0.5
"""Of the time that the rest of a step takes, for all grammars together."""

LEAST_S = 0.005
"""Of a step, for all grammars together: steps of small models are shorter than a second mask."""

ALONE_S = 0.05
"""Of a step, where nobody else is in it, and at most. With 129,280 tokens the slowest grammar of
the test data takes 0.044 s for a mask, on one core of an AMD EPYC."""

EXCESS_S = 0.5
"""Over the budget, in all."""

_UNTOLD = 16

T = TypeVar("T")


class Pace:
    """What is done for grammars in each step.

    Attributes:
        is_watched: the last step passed its budget, so that each call is timed in this one.
    """

    __slots__ = ("_judged_s", "_spent_s", "_untold", "_wall_s", "is_watched")

    def __init__(self) -> None:
        self.is_watched = False
        self._wall_s = 0.0
        self._judged_s = time.perf_counter()
        self._spent_s: dict[Constraint, float] = {}
        self._untold = 0
        """Steps one behind the other that passed the budget, perhaps as they have many rows."""

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Something is done for grammars."""
        began_s = time.perf_counter()
        try:
            yield
        finally:
            self._wall_s += time.perf_counter() - began_s
            self.is_watched |= self._wall_s > LONG_S

    def call(self, constraint: Constraint, follow: Callable[[], T]) -> T:
        """Do something for one sequence; for use where each call is timed.

        Raises:
            UnsupportedGrammar: it takes too long by itself; else what ``follow`` raises.
        """
        began_s = time.thread_time()
        found = follow()
        took_s = time.thread_time() - began_s
        if self.is_watched:
            self._spent_s[constraint] = self._spent_s.get(constraint, 0.0) + took_s
            if took_s > LONG_S:
                raise _too_slow(f"{took_s:.2f} s for one token, over {LONG_S:g} s")
        return found

    def judge(
        self, rows: Mapping[Constraint, int], *, has_others: bool
    ) -> tuple[Constraint, UnsupportedGrammar] | None:
        """All masks of a step are made.

        Args:
            rows: of the step, by whose they are.
            has_others: more than one sequence waits for the step.

        Returns:
            Who has taken too much by now, and the reason.
        """
        now_s = time.perf_counter()
        rest_s = now_s - self._judged_s - self._wall_s
        budget_s = min(max(SHARE * rest_s, LEAST_S), ALONE_S) if has_others else ALONE_S
        over_s = {
            one: max(0.0, self._spent_s.get(one, 0.0) - MASK_S * count)
            for one, count in rows.items()
        }
        level_s = _level(list(over_s.values()), budget_s)
        was_watched, is_long = self.is_watched, self._wall_s > budget_s
        for one, time_s in over_s.items():
            if time_s > level_s:
                one.excess_s += max(1, self._untold) * (time_s - level_s)
            elif one.excess_s and (was_watched or not is_long):
                one.excess_s = max(0.0, one.excess_s - (budget_s - time_s))
        self._untold = self._untold + 1 if is_long and not was_watched else 0
        # Many quick ones may hide a slow one, so one step in some is watched in any case.
        much_s = budget_s + MASK_S * sum(rows.values())
        self.is_watched = self._wall_s > much_s or self._untold == _UNTOLD
        self._judged_s, self._wall_s, self._spent_s = now_s, 0.0, {}
        worst = max(rows, key=lambda one: one.excess_s, default=None)
        if worst is None or not was_watched or worst.excess_s <= EXCESS_S:
            return None
        what = f"{over_s[worst] + MASK_S * rows[worst]:.3f} s in one step"
        return worst, _too_slow(f"{what}, where all grammars together have {budget_s:.3f} s more")


def _level(times_s: Sequence[float], budget_s: float) -> float:
    """To what all that took longer must be cut down for the sum to keep a budget."""
    if sum(times_s) <= budget_s:
        return max(times_s, default=0.0)
    left_s = budget_s
    ordered = sorted(times_s)
    for number, time_s in enumerate(ordered):
        share_s = left_s / (len(ordered) - number)
        if time_s > share_s:
            return share_s
        left_s -= time_s
    return ordered[-1]


def _too_slow(what: str) -> UnsupportedGrammar:
    return UnsupportedGrammar(
        f"the grammar takes {what}, and holds up other requests",
        hint="a text can be read in too many ways: make it less ambiguous",
    )
