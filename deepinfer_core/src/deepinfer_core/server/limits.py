"""How much may the bearer of one key ask for at once, and in a minute?"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from deepinfer_core.server.refusals import Refused

__all__ = ["KeyLimits"]

_WINDOW_S = 60.0


class KeyLimits:
    """Counts requests of each key; without keys all are of one.

    Args:
        max_in_work: of one key; None: no limit.
        per_minute: of one key in any minute; None: no limit.
        clock: seconds that never go back.
    """

    def __init__(
        self,
        max_in_work: int | None,
        per_minute: int | None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._max_in_work = max_in_work
        self._per_minute = per_minute
        self._clock = clock
        self._in_work: Counter[str] = Counter()
        self._times: dict[str, deque[float]] = {}

    @contextmanager
    def taken(self, label: str, *, counts: bool = True) -> Iterator[None]:
        """Count a request for as long as it is in work.

        Args:
            label: of its key.
            counts: False lets it in however many there are, and counts nothing.

        Raises:
            Refused: 429; there are too many.
        """
        if not counts:
            yield
            return
        if self._max_in_work is not None and self._in_work[label] >= self._max_in_work:
            raise Refused(
                429,
                "too_many_in_work",
                f"{self._max_in_work} requests of this key are in work, as many as may be",
                hint="wait for one of them to end",
            )
        self._count(label)
        self._in_work[label] += 1
        try:
            yield
        finally:
            self._in_work[label] -= 1

    def _count(self, label: str) -> None:
        """Note the time of a request that is let in."""
        if self._per_minute is None:
            return
        now = self._clock()
        times = self._times.setdefault(label, deque())
        while times and times[0] <= now - _WINDOW_S:
            times.popleft()
        if len(times) >= self._per_minute:
            raise Refused(
                429,
                "rate_limit_exceeded",
                f"this key had {self._per_minute} requests in a minute, as many as may be",
                hint="spread them, or wait",
                retry_after_s=max(1, math.ceil(times[0] + _WINDOW_S - now)),
            )
        times.append(now)
