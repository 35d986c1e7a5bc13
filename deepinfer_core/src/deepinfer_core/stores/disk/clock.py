"""What time is it, and has somebody set the clock?

Ages on a disk outlive processes, so they are seconds since 1970, which an administrator or a time
server may set. A sweep that finds the clock set by more than an hour removes nothing for its age;
the next one does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Clock", "ClockWatch"]

_JUMP_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Two clocks.

    Attributes:
        wall: seconds since 1970.
        steady: seconds that nobody sets.
    """

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic


class ClockWatch:
    """Compares both clocks from sweep to sweep.

    Args:
        clock: both.
        last_wall_s: of the last sweep of any process; None: there was none.
    """

    def __init__(self, clock: Clock, last_wall_s: float | None) -> None:
        self._clock = clock
        wall_s = clock.wall()
        # A store that was closed for long looks like a clock that was set: one sweep more.
        near = last_wall_s is None or abs(wall_s - last_wall_s) <= _JUMP_S
        self._wall_s = wall_s if near or last_wall_s is None else last_wall_s
        self._steady_s = clock.steady()

    def is_steady(self) -> bool:
        """Whether nobody set the clock since the last call."""
        wall_s, steady_s = self._clock.wall(), self._clock.steady()
        jump_s = (wall_s - self._wall_s) - (steady_s - self._steady_s)
        self._wall_s, self._steady_s = wall_s, steady_s
        return abs(jump_s) <= _JUMP_S
