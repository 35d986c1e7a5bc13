"""Whose grammar holds up the step loop?

What an engine needs for a token depends on the grammar and on the text so far: an ambiguous grammar
takes longer the longer the text is. All of it happens in the step loop, where nothing can be
stopped. So the clock on the wall says, at next to no cost, that a step took long; in the next one
each token is timed alone, by the processor time of the thread, as a busy machine is nobody's fault.
Who takes long then fails, and so does who takes over the usual time until that adds up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from deepinfer_core.engine.grammar_constraint import Constraint
from deepinfer_core.errors import UnsupportedGrammar

__all__ = ["EXCESS_S", "LONG_S", "USUAL_S", "Pace"]

LONG_S = 0.25
"""For following or masking one token."""

USUAL_S = 0.05
"""For one token in the mean. With 129,280 tokens the slowest grammar of the test data takes 0.044 s
for a mask, on one core of an AMD EPYC."""

EXCESS_S = 0.5
"""Over ``USUAL_S`` a token, in all. A processor of half the speed reaches it with a dozen tokens
that each take as long as that mask."""

_MASK_S = 0.0025
"""Of one row among many, where none is slow: llguidance takes 0.0023 s with 129,280 tokens."""

T = TypeVar("T")


class Pace:
    """What is done for grammars in each step.

    Attributes:
        is_watched: it took long in the last step, so that each call is timed in this one.
    """

    __slots__ = ("_began_s", "is_watched")

    def __init__(self) -> None:
        self.is_watched = False
        self._began_s = 0.0

    def begin(self) -> None:
        """A step begins."""
        self._began_s = time.perf_counter()

    def end(self, rows: int) -> None:
        """It ends, and so many rows were masked or drafts followed."""
        self.is_watched = time.perf_counter() - self._began_s > USUAL_S + _MASK_S * rows

    def call(self, constraint: Constraint, follow: Callable[[], T]) -> T:
        """Do something for one sequence; for use where each call is timed.

        Raises:
            UnsupportedGrammar: it takes too long; else what ``follow`` raises.
        """
        began_s = time.thread_time()
        found = follow()
        took_s = time.thread_time() - began_s
        if self.is_watched:
            constraint.excess_s += took_s
            if took_s > LONG_S:
                raise _too_slow(f"{took_s:.2f} s for one token, over {LONG_S:g} s")
            if constraint.excess_s > EXCESS_S:
                raise _too_slow(f"{took_s:.2f} s a token, over {USUAL_S:g} s in the mean")
        return found


def _too_slow(what: str) -> UnsupportedGrammar:
    return UnsupportedGrammar(
        f"the grammar takes {what}, and holds up other requests",
        hint="a text can be read in too many ways: make it less ambiguous",
    )
