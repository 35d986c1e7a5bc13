"""How far is the loading of an engine, and how did it go?

Kept from the last start until the next one: whoever looks afterwards sees how long each phase took.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from deepinfer_core.telemetry.progress import (
    PhaseAdvanced,
    PhaseFinished,
    PhaseStarted,
    ProgressEvent,
)

__all__ = ["LoadReport"]


@dataclass(slots=True)
class _Phase:
    phase: str
    unit: str
    total: int | None
    started_s: float
    done: int = 0
    elapsed_s: float | None = None
    outcome: str = "running"

    def to_json(self) -> dict[str, Any]:
        """Without its start, which is of a clock that nobody else has."""
        shown = (name for name in self.__slots__ if name != "started_s")
        return {name: getattr(self, name) for name in shown}


@dataclass(slots=True)
class LoadReport:
    """Phases of one loading; a consumer of progress.

    Attributes:
        attempt: 1 for the first start of the engine.
        last_failure: how the engine before ended, or why it was not loaded; empty: it did not.
    """

    attempt: int = 1
    last_failure: str = ""
    _phases: dict[str, _Phase] = field(default_factory=dict)

    def __call__(self, event: ProgressEvent) -> None:
        """Take in an event."""
        if isinstance(event, PhaseStarted):
            started_s = time.monotonic()
            self._phases[event.phase] = _Phase(event.phase, event.unit, event.total, started_s)
        elif (phase := self._phases.get(event.phase)) is not None:
            phase.done = event.done
            if not isinstance(event, PhaseAdvanced):
                phase.elapsed_s, phase.outcome = event.elapsed_s, event.outcome

    def abandoned(self) -> list[PhaseFinished]:
        """The ends of phases that whoever loaded has not lived to see."""
        now_s = time.monotonic()
        return [
            PhaseFinished(
                phase=one.phase, done=one.done, elapsed_s=now_s - one.started_s, outcome="failed"
            )
            for one in self._phases.values()
            if one.elapsed_s is None
        ]

    def to_json(self) -> dict[str, Any]:
        """The same as data, phases in the order of their starts."""
        return {
            "attempt": self.attempt,
            "last_failure": self.last_failure,
            "phases": [phase.to_json() for phase in self._phases.values()],
        }
