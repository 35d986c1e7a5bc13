"""Is a store worth asking now?

It is not behind a number of failures in a row, but for one call every few seconds, which tries
whether it has come back. Pure: whoever asks says what time it is, and holds a lock.
"""

from __future__ import annotations

__all__ = ["Breaker"]


class Breaker:
    """Counts failures of one kind of call.

    Args:
        most_failures: in a row; with the last of them the circuit opens.
        probe_every_s: an open circuit lets one call through in so many seconds.
    """

    def __init__(self, *, most_failures: int = 5, probe_every_s: float = 2.0) -> None:
        self._most_failures = most_failures
        self._probe_every_s = probe_every_s
        self._failures = 0
        self._probe_from_s = 0.0

    @property
    def is_open(self) -> bool:
        """Whether calls are refused."""
        return self._failures >= self._most_failures

    def would_let(self, now_s: float) -> bool:
        """Whether a call would be let through; takes nothing."""
        return not self.is_open or now_s >= self._probe_from_s

    def let(self, now_s: float) -> bool:
        """Whether a call may be made; of an open circuit the next one only after a while."""
        if not self.would_let(now_s):
            return False
        if self.is_open:
            self._probe_from_s = now_s + self._probe_every_s
        return True

    def succeeded(self) -> None:
        """A call was answered: the circuit is closed."""
        self._failures = 0

    def failed(self, now_s: float) -> None:
        """A call was not answered, or in vain."""
        self._failures += 1
        if self.is_open:
            self._probe_from_s = now_s + self._probe_every_s

    def trip(self, now_s: float) -> None:
        """Open the circuit at once."""
        self._failures = max(self._failures, self._most_failures)
        self._probe_from_s = now_s + self._probe_every_s
