"""Which blocks lack fragments, and how are they made whole again?

Reading and writing tell which blocks lack some; a scrub looks for the others, a page of keys with
each sweep. Repairs read all that is left of a block and write what is missing, as many bytes a
second as they may. Of a block that cannot be put together any more the rest is removed, once it was
found so twice: it may just be being written.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

__all__ = ["RepairQueue"]

_MOST = 1 << 16

_SWEEP_S = 60.0
"""Between two sweeps; see ``KvStore.sweep``. What was not spent for longer is lost."""

_Name = tuple[str, bytes]
"""Group and key."""


class RepairQueue:
    """Blocks that lack fragments, the ones in danger first.

    Args:
        bytes_per_s: that repairs may write and read.
        clock: seconds that only grow.
    """

    def __init__(self, bytes_per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._waiting: OrderedDict[_Name, int] = OrderedDict()
        self._rate, self._clock = bytes_per_s, clock
        self._since_s, self._budget_bytes = -math.inf, 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, group: str, key: bytes, *, is_urgent: bool = False, visits: int = 0) -> None:
        """Have a block looked at; more than can be remembered are left to the scrub."""
        with self._lock:
            known = self._waiting.get((group, key))
            if known is None and len(self._waiting) >= _MOST:
                return
            self._waiting[group, key] = max(visits, known or 0)
            if is_urgent:
                self._waiting.move_to_end((group, key), last=False)

    def take(self, most: int) -> Sequence[tuple[str, bytes, int]]:
        """The next blocks of one group, and how often each was found beyond repair before."""
        with self._lock:
            taken: list[tuple[str, bytes, int]] = []
            while self._waiting and len(taken) < most:
                (group, key), visits = next(iter(self._waiting.items()))
                if taken and group != taken[0][0]:
                    break
                del self._waiting[group, key]
                taken.append((group, key, visits))
            return taken

    def has_budget(self) -> bool:
        """Whether something may be read and written now."""
        now_s = self._clock()
        since_s, self._since_s = self._since_s, now_s
        earned = min(max(now_s - since_s, 0.0), _SWEEP_S) * self._rate
        self._budget_bytes = min(self._budget_bytes + earned, _SWEEP_S * self._rate)
        return self._budget_bytes > 0

    def spend(self, size_bytes: int) -> None:
        """Something was; more than there was is owed."""
        self._budget_bytes -= size_bytes
