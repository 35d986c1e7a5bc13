"""Whose grammar holds up the step loop?

What an engine needs for a token depends on the grammar and on the text so far: an ambiguous grammar
takes longer the longer the text is. All of it happens in the step loop, where nothing can be
stopped. So the clock on the wall says, at next to no cost, that a step took long; in the next one
each token is timed alone, by the processor time of the thread, as a busy machine is nobody's fault.
Who takes long then fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from deepinfer_core.errors import UnsupportedGrammar

__all__ = ["LONG_S", "Pace"]

LONG_S = 0.25
"""For following or masking one token. With 129,280 tokens the slowest grammar of the test data
takes 0.044 s for a mask, on one core of an AMD EPYC."""

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

    def end(self) -> None:
        """It ends."""
        self.is_watched = time.perf_counter() - self._began_s > LONG_S

    def call(self, follow: Callable[[], T]) -> T:
        """Do something for one sequence; for use where each call is timed.

        Raises:
            UnsupportedGrammar: it takes too long; else what ``follow`` raises.
        """
        began_s = time.thread_time()
        found = follow()
        took_s = time.thread_time() - began_s
        if self.is_watched and took_s > LONG_S:
            raise UnsupportedGrammar(
                f"the grammar takes {took_s:.2f} s for one token, over {LONG_S:g} s, and holds up"
                " other requests",
                hint="a text can be read in too many ways: make it less ambiguous",
            )
        return found
