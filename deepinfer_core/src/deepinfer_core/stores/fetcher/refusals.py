"""Does the log say that a store does not keep blocks, and why, without saying it of each?"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from deepinfer_core.telemetry.logs import get_logger

__all__ = ["Refusals"]

_SAID_EVERY_S = 60.0


class Refusals:
    """Says it at most once a minute; of one thread.

    Args:
        clock: tells the time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said_s, self._blocks = -math.inf, 0

    def note(self, outcome: str, reason: str, blocks: int) -> None:
        """Some blocks were not kept; the line counts all since the one before."""
        self._blocks += blocks
        now_s = self._clock()
        if now_s - self._said_s < _SAID_EVERY_S:
            return
        get_logger(__name__).warning(
            "store.refused", outcome=outcome, reason=reason, blocks=self._blocks
        )
        self._said_s, self._blocks = now_s, 0
