"""How does long work tell how far it is?

As a stream of three kinds of event for each phase: started, advanced, finished. Whoever wants to
show progress is a consumer: a terminal's bar, a log, a service's status page. Consumers run in the
thread that does the work and must be quick.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "Phase",
    "PhaseAdvanced",
    "PhaseFinished",
    "PhaseStarted",
    "ProgressConsumer",
    "ProgressEvent",
    "ProgressStream",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseStarted:
    """``phase.started``.

    Attributes:
        phase: dotted name, e.g. ``weights.load``.
        total: amount of work; None if unknown.
        unit: what is counted: ``bytes``, ``tokens``, ``requests``.
    """

    phase: str
    total: int | None
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseAdvanced:
    """``phase.advanced``.

    Attributes:
        phase: the phase.
        done: amount so far; never falls.
        total: amount of work; None if unknown.
        detail: what was worked on, e.g. a tensor's name.
    """

    phase: str
    done: int
    total: int | None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseFinished:
    """``phase.finished``.

    Attributes:
        phase: the phase.
        done: amount at the end.
        elapsed_s: from start to end.
        outcome: whether the work ended by itself or by an exception.
    """

    phase: str
    done: int
    elapsed_s: float
    outcome: Literal["done", "failed"]


ProgressEvent = PhaseStarted | PhaseAdvanced | PhaseFinished
ProgressConsumer = Callable[[ProgressEvent], None]


class Phase:
    """One running phase; made by ``ProgressStream.phase``."""

    def __init__(self, name: str, total: int | None, emit: ProgressConsumer) -> None:
        self._name = name
        self._total = total
        self._emit = emit
        self._done = 0

    @property
    def done(self) -> int:
        """Amount so far."""
        return self._done

    def advance(self, amount: int = 1, detail: str = "") -> None:
        """Add to what is done.

        Args:
            amount: not negative.
            detail: what was worked on.
        """
        self.advance_to(self._done + amount, detail)

    def advance_to(self, done: int, detail: str = "") -> None:
        """Set what is done.

        Raises:
            ValueError: less than before.
        """
        if done < self._done:
            raise ValueError(f"{self._name} cannot go back from {self._done} to {done}")
        self._done = done
        self._emit(PhaseAdvanced(phase=self._name, done=done, total=self._total, detail=detail))


class ProgressStream:
    """Passes events to any number of consumers.

    Args:
        consumers: called in order, each with every event.
        clock_s: monotonic clock.
    """

    def __init__(
        self, *consumers: ProgressConsumer, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._consumers = consumers
        self._clock_s = clock_s

    @contextmanager
    def phase(self, name: str, total: int | None = None, unit: str = "") -> Iterator[Phase]:
        """Run a phase: started on entry, finished on exit, failed when an exception leaves it."""
        started_s = self._clock_s()
        self._emit(PhaseStarted(phase=name, total=total, unit=unit))
        phase = Phase(name, total, self._emit)
        outcome: Literal["done", "failed"] = "failed"
        try:
            yield phase
            outcome = "done"
        finally:
            self._emit(
                PhaseFinished(
                    phase=name,
                    done=phase.done,
                    elapsed_s=self._clock_s() - started_s,
                    outcome=outcome,
                )
            )

    def _emit(self, event: ProgressEvent) -> None:
        for consumer in self._consumers:
            consumer(event)
