"""What does not answer now, and is therefore not asked?

One failure is enough: a dead node makes every call that meets it take a second, a dead master four.
Whether it has come back is tried now and then beside all calls, so that no caller ever pays for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from deepinfer_core.stores.breaker import Breaker

__all__ = ["Circuits"]


class Circuits:
    """One circuit for everything that ever failed, by name; may be used by several threads.

    Args:
        retry_s: seconds after which what does not answer is tried again.
        clock: seconds that only grow.
    """

    def __init__(self, retry_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._retry_s, self._clock = retry_s, clock
        self._lock = threading.Lock()
        self._open: dict[str, tuple[Breaker, str]] = {}
        self._tried: set[str] = set()

    def open(self, name: str, sample: str = "") -> None:
        """It does not answer.

        Args:
            name: of what does not.
            sample: something to try it with.
        """
        with self._lock:
            breaker, _ = self._open.get(name, (self._breaker(), ""))
            breaker.failed(self._clock())
            self._open[name] = breaker, sample

    def close(self, name: str) -> None:
        """It answers, or nothing is known against it any more."""
        with self._lock:
            self._open.pop(name, None)

    def is_open(self, name: str) -> bool:
        """Whether it is not to be asked."""
        return name in self._open

    def names(self) -> set[str]:
        """Everything that is not to be asked."""
        with self._lock:
            return set(self._open)

    def take_turn(self, name: str) -> str | None:
        """Whether the one who asks is to try it now: with what. Otherwise None.

        Whoever is to try it gives the turn back, whatever came of it.
        """
        with self._lock:
            breaker, sample = self._open.get(name, (None, ""))
            if breaker is None or name in self._tried or not breaker.let(self._clock()):
                return None
            self._tried.add(name)
            return sample

    def give_turn_back(self, name: str) -> None:
        """It was tried, or could not be."""
        with self._lock:
            self._tried.discard(name)

    def _breaker(self) -> Breaker:
        return Breaker(most_failures=1, probe_every_s=self._retry_s)
