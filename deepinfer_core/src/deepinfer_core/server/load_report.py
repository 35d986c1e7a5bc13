"""How far is the loading of an engine, and how did it go?

Kept from the last start until the next one: whoever looks afterwards sees how long each phase took.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from deepinfer_core.telemetry.progress import PhaseAdvanced, PhaseStarted, ProgressEvent

__all__ = ["LoadReport"]


@dataclass(slots=True)
class _Phase:
    phase: str
    unit: str
    total: int | None
    done: int = 0
    elapsed_s: float | None = None
    outcome: str = "running"

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


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
            self._phases[event.phase] = _Phase(event.phase, event.unit, event.total)
        elif (phase := self._phases.get(event.phase)) is not None:
            phase.done = event.done
            if not isinstance(event, PhaseAdvanced):
                phase.elapsed_s, phase.outcome = event.elapsed_s, event.outcome

    def to_json(self) -> dict[str, Any]:
        """The same as data, phases in the order of their starts."""
        return {
            "attempt": self.attempt,
            "last_failure": self.last_failure,
            "phases": [phase.to_json() for phase in self._phases.values()],
        }
