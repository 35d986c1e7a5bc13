"""When did masks and forward passes run, beside which other programs? For ``grammar_overlap``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from deepinfer_core.engine.grammar_masks import Grammars
from deepinfer_core.engine.instruments import Instruments, StepFacts
from deepinfer_core.engine.rows import RowRequest
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.errors import DeepInferError
from deepinfer_core.interfaces.device import Event, Stream


class Span(NamedTuple):
    """When something began and ended."""

    began_s: float
    ended_s: float

    @property
    def length_s(self) -> float:
        """How long it took."""
        return self.ended_s - self.began_s

    def within(self, other: Span) -> float:
        """Seconds of it that lie within another one."""
        return max(0.0, min(self.ended_s, other.ended_s) - max(self.began_s, other.began_s))

    def after(self, other: Span) -> float:
        """Seconds of it that lie behind the end of another one."""
        return max(0.0, self.ended_s - max(self.began_s, other.ended_s))


class Timeline:
    """What happened since it was cleared.

    Attributes:
        launches: forward passes that were queued.
        forwards: when each of them ran, on the device's thread.
        masks: the number of a step's forward pass, and when its masks were made.
        facts: of the steps whose results were handled.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.launches = 0
        self.forwards: list[Span] = []
        self.masks: list[tuple[int, Span]] = []
        self.facts: list[StepFacts] = []


class TimedStream(Stream):
    """Notes when forward passes run."""

    def __init__(self, inner: Stream, timeline: Timeline) -> None:
        self._inner, self._timeline = inner, timeline

    def submit(self, work: Callable[[], None]) -> Event:
        """Queue work."""
        if ".launch." not in work.__qualname__:
            return self._inner.submit(work)
        self._timeline.launches += 1

        def timed() -> None:
            began_s = time.perf_counter()
            work()
            self._timeline.forwards.append(Span(began_s, time.perf_counter()))

        return self._inner.submit(timed)

    def drain(self) -> None:
        """Wait."""
        self._inner.drain()

    def close(self) -> None:
        """Close."""
        self._inner.close()


class TimedGrammars(Grammars):
    """Notes when masks are filled.

    Attributes:
        kept: mask of each position of the text of a seed.
        fills: whether masks are filled; otherwise those that were kept are taken.
    """

    def __init__(self, inner: Grammars, timeline: Timeline) -> None:
        super().__init__(inner._pool, inner._end_ids)
        self._timeline = timeline
        self.kept: dict[tuple[int, int], RowRequest] = {}
        self.fills = True

    def masked(
        self, rows: tuple[RowRequest, ...], owners: list[Sequence]
    ) -> tuple[tuple[RowRequest, ...], list[tuple[Sequence, DeepInferError]]]:
        """Fill them, or look them up."""
        if not self.fills:
            kept = [self.kept[row.settings.seed, row.position] for row in rows]
            known = [row._replace(mask=one.mask) for row, one in zip(rows, kept, strict=True)]
            return tuple(known), []
        began_s = time.perf_counter()
        found, broken = super().masked(rows, owners)
        span = Span(began_s, time.perf_counter())
        self._timeline.masks.append((self._timeline.launches - 1, span))
        if any(row.mask is not None for row in found):
            self.kept |= {(row.settings.seed, row.position): row for row in found}
        return found, broken


class TimedInstruments(Instruments):
    """Keeps the facts of steps."""

    timeline: Timeline

    def stepped(self, facts: StepFacts) -> None:
        """Keep them."""
        self.timeline.facts.append(facts)
        super().stepped(facts)


class Others:
    """How much other programs did since it was made."""

    def __init__(self) -> None:
        self._busy_s, self._began_s = _busy_s(), time.perf_counter()

    def share(self) -> float:
        """The part of all processors' time that they took."""
        passed_s = time.perf_counter() - self._began_s
        return max(0.0, _busy_s() - self._busy_s) / passed_s / (os.cpu_count() or 1)


def _busy_s() -> float:
    """Seconds of all processors in which they did something that was not this process."""
    first = Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0]
    user, nice, system, _idle, _waiting, *stolen = map(int, first.split()[1:9])
    busy = user + nice + system + sum(stolen)
    return busy / os.sysconf("SC_CLK_TCK") - time.process_time()
