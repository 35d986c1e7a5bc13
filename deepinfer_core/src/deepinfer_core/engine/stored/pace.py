"""How long would it take to compute a prefix?"""

from __future__ import annotations

__all__ = ["Pace"]

_NEWEST_SHARE = 0.2
"""What the newest step counts among all."""


class Pace:
    """Rows of prompts that the engine computes in a second, as its steps say."""

    def __init__(self) -> None:
        self._rows_per_s: float | None = None

    def saw(self, prompt_rows: int, decode_rows: int, elapsed_s: float) -> None:
        """A step has ended; only one that had mostly rows of prompts says something about them."""
        if prompt_rows <= decode_rows or elapsed_s <= 0:
            return
        found = prompt_rows / elapsed_s
        known = self._rows_per_s
        self._rows_per_s = found if known is None else known + _NEWEST_SHARE * (found - known)

    def seconds(self, rows: int) -> float | None:
        """For so many rows, if nobody else is served; None: no prompt was seen."""
        return None if self._rows_per_s is None else rows / self._rows_per_s
