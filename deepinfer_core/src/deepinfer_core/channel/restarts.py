"""When is a process that died started again?

After a while that doubles with each failure; one that worked for long enough pays for those before.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Restarts"]


@dataclass(slots=True, kw_only=True)
class Restarts:
    """Counts failures.

    Attributes:
        first_wait_s: before the first start after a failure.
        longest_wait_s: no wait is longer.
        most: failures in a row; at one more it is given up.
        stable_s: one that was ready for so long ends the row.
    """

    first_wait_s: float = 0.5
    longest_wait_s: float = 30.0
    most: int = 5
    stable_s: float = 60.0
    _failures: int = 0

    def wait_s(self, ready_s: float) -> float | None:
        """How long to wait now that one more has failed; None: it is given up.

        Args:
            ready_s: how long it was ready; 0: it never was.
        """
        self._failures = 1 if ready_s >= self.stable_s else self._failures + 1
        if self._failures > self.most:
            return None
        return min(self.first_wait_s * 2.0 ** (self._failures - 1), self.longest_wait_s)
