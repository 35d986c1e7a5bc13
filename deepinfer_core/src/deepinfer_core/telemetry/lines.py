"""How does progress look where there is no terminal?"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import IO

from deepinfer_core.telemetry.progress import (
    PhaseAdvanced,
    PhaseFinished,
    PhaseStarted,
    ProgressEvent,
)

__all__ = ["ProgressLines"]

_PERIOD_S = 5.0
"""A phase has no more lines between its first and its last one than one in this time."""


class ProgressLines:
    """A consumer that writes a line where a phase begins and ends, and now and then between.

    Args:
        stream: where to write.
        clock_s: monotonic clock.
    """

    def __init__(self, stream: IO[str], clock_s: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock_s = clock_s
        self._begun: dict[str, PhaseStarted] = {}
        self._due_s: dict[str, float] = {}

    def __call__(self, event: ProgressEvent) -> None:
        """Write an event, if it is worth a line."""
        name, now_s = event.phase, self._clock_s()
        if isinstance(event, PhaseStarted):
            self._begun[name], self._due_s[name] = event, now_s + _PERIOD_S
            self._write(name, "begun" if event.total is None else self._amount(name, 0))
        elif isinstance(event, PhaseFinished):
            word = "" if event.outcome == "done" else "failed, "
            self._write(name, f"{word}{self._amount(name, event.done)} in {event.elapsed_s:.1f} s")
        elif isinstance(event, PhaseAdvanced) and now_s >= self._due_s.get(name, now_s):
            self._due_s[name] = now_s + _PERIOD_S
            self._write(name, self._amount(name, event.done))

    def _amount(self, name: str, done: int) -> str:
        begun = self._begun.get(name)
        total = "" if begun is None or begun.total is None else f" of {begun.total}"
        unit = "" if begun is None else begun.unit
        return f"{done}{total} {unit}".rstrip()

    def _write(self, name: str, text: str) -> None:
        # Whoever closed the stream does not want to know, and the work goes on.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(f"{name}: {text}\n")
            self._stream.flush()
