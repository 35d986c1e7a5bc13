"""How does progress look where there is no terminal?"""

from __future__ import annotations

import contextlib
from typing import IO

from deepinfer_core.telemetry.progress import PhaseAdvanced, PhaseStarted, ProgressEvent

__all__ = ["ProgressLines"]

_LINES = 10


class ProgressLines:
    """A consumer that writes a line at the start of a phase, and one for each tenth of it.

    Phases whose amount of work is unknown, or nothing, have the first line only.

    Args:
        stream: where to write.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._units: dict[str, str] = {}
        self._tenths: dict[str, int] = {}

    def __call__(self, event: ProgressEvent) -> None:
        """Write an event, if it is worth a line."""
        if isinstance(event, PhaseStarted):
            self._units[event.phase], self._tenths[event.phase] = event.unit, 0
            self._write(event.phase, 0, event.total)
        elif isinstance(event, PhaseAdvanced) and event.total:
            tenth = _LINES * event.done // event.total
            if tenth > self._tenths.get(event.phase, 0):
                self._tenths[event.phase] = tenth
                self._write(event.phase, event.done, event.total)

    def _write(self, phase: str, done: int, total: int | None) -> None:
        unit = self._units.get(phase, "")
        amount = "begun" if total is None else f"{done} of {total} {unit}".rstrip()
        # Whoever closed the stream does not want to know, and the work goes on.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(f"{phase}: {amount}\n")
            self._stream.flush()
