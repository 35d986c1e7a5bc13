"""How many bytes may work on the side read and write now, and who does it make way for?"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

__all__ = ["Budget", "Traffic"]

_SWEEP_S = 60.0
"""Between two sweeps; see ``KvStore.sweep``. What was not spent for longer is lost."""

_YIELD_S = 0.02
"""For so long each piece of work on the side waits for reads; they may never cease."""


class Budget:
    """Bytes that are earned with time, from a minute's worth on.

    Args:
        bytes_per_s: that may be read and written.
        clock: seconds that only grow.
    """

    def __init__(self, bytes_per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = bytes_per_s, clock
        self._since_s, self._bytes = -math.inf, 0.0

    def has_some(self) -> bool:
        """Whether something may be read and written now."""
        now_s = self._clock()
        since_s, self._since_s = self._since_s, now_s
        earned = min(max(now_s - since_s, 0.0), _SWEEP_S) * self._rate
        self._bytes = min(self._bytes + earned, _SWEEP_S * self._rate)
        return self._bytes > 0

    def spend(self, size_bytes: int) -> None:
        """Something was; more than there was is owed."""
        self._bytes -= size_bytes


class Traffic:
    """Reads that are under way; a context for each of them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._reads = 0

    def __enter__(self) -> None:
        with self._changed:
            self._reads += 1

    def __exit__(self, *raised: object) -> None:
        with self._changed:
            self._reads -= 1
            if not self._reads:
                self._changed.notify_all()

    def make_way(self) -> None:
        """Wait until nobody reads, for a moment at most."""
        with self._changed:
            self._changed.wait_for(lambda: not self._reads, _YIELD_S)
