"""Who copies out of the map now, and how long do others wait for it?

A copy of a block releases the interpreter's lock and wants it back after some microseconds. Threads
that copy at the same time take it from each other with every block, which costs more than they gain
from each other. So one call goes behind another. A call that waits for a disk takes longer; others
then go on beside it, because a disk does more for two than for one.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

__all__ = ["Turns"]

_WAIT_S = 0.005
"""Four calls of 64 blocks that lie in memory, as many as a fetcher makes at a time."""


class Turns:
    """Lets one go behind another, if that does not take long.

    Args:
        wait_s: how long somebody waits for others at most. Behind a turn that took longer nobody
            waits, until one is short again.
        clock: tells the time, as deadlines count it.
    """

    def __init__(
        self, wait_s: float = _WAIT_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._wait_s, self._clock = wait_s, clock
        self._lock = threading.Lock()
        self._is_short = True

    @contextlib.contextmanager
    def taken(self, deadline_s: float) -> Iterator[None]:
        """Alone, or beside others that take long; a deadline ends the waiting sooner."""
        left_s = max(deadline_s - self._clock(), 0.0)
        wait_s = min(left_s, self._wait_s, threading.TIMEOUT_MAX)
        if not self._lock.acquire(timeout=wait_s if self._is_short else 0.0):
            yield
            return
        began_s = self._clock()
        try:
            yield
        finally:
            self._is_short = self._clock() - began_s < self._wait_s
            self._lock.release()
