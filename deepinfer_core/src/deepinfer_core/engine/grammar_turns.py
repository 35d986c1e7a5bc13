"""Which grammar is compiled next, and which gives way to it?

How long one takes shows only when it is compiled. So while others wait each has a short turn; if it
is not done then it gives way, begins anew later, and its next turn is twice as long. Who has had
fewer turns goes first. A grammar therefore waits about as long as it takes itself, once for each of
those beside it, however long they take. Where nobody waits nobody gives way.

One process is for the new ones, which have had no turn; the others are for the rest. What one of
the two does not need the other has, but that slow ones, with ``SLOW_TURNS`` turns, are not begun
where the new ones belong. If there is one process only, new ones take it from the rest.

Of equals the next is of the caller for whom the fewest are being compiled, then of the one whose
last turn is longest ago, as the server does it with requests; then the oldest.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = [
    "FIRST_TURN_S",
    "SLOW_TURNS",
    "Decision",
    "JobView",
    "Snapshot",
    "decide",
    "makes_room",
    "turns_had",
]

FIRST_TURN_S = 0.1
"""The first turn: with a small vocabulary nearly all grammars are done by then."""

SLOW_TURNS = 3
"""Turns of a slow grammar; they took 0.7 s together."""

_MANY_TURNS = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A grammar that waits or is being compiled.

    Attributes:
        number: in the order in which they came.
        callers: who wants it.
        turns: that it had, and was not done.
        since_s: when the present turn began; None: it waits.
        is_stopping: it was told to give way, and has not yet.
    """

    number: int
    callers: tuple[str, ...]
    turns: int = 0
    since_s: float | None = None
    is_stopping: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a decision is made from.

    Attributes:
        now_s: on the clock of all times.
        jobs: all grammars, oldest first.
        free: processes that wait for a grammar.
        processes: all of them.
        last_turns: number of the last turn of a caller; left out: it had none.
    """

    now_s: float
    jobs: Sequence[JobView]
    free: int
    processes: int
    last_turns: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do now.

    Attributes:
        start: numbers of grammars that get a free process, in this order.
        stop: numbers of grammars that must give way.
        again_s: when to decide again even if nothing happens; None: need not be.
    """

    start: tuple[int, ...] = ()
    stop: tuple[int, ...] = ()
    again_s: float | None = None


def turns_had(job: JobView, now_s: float) -> int:
    """Turns of a grammar, were it to give way now; its next one will be longer than this one."""
    turns = job.turns
    if job.since_s is not None:
        while now_s - job.since_s >= _turn_s(turns):
            turns += 1
    return turns


def decide(snapshot: Snapshot) -> Decision:
    """Share out free processes, and say who gives way; equal snapshots give equal decisions."""
    return _Round(snapshot).decide()


def makes_room(jobs: Sequence[JobView], caller: str) -> int | None:
    """Which waiting grammar goes where there is no room for one more of a caller.

    It is the latest of the caller for whom the most wait; None if that is the one who asks.
    """
    waiting = [job for job in jobs if job.since_s is None]
    counts = Counter(name for job in waiting for name in set(job.callers))
    # The first of equal ones is the one whose grammars came first.
    heaviest = max(counts, key=lambda name: counts[name], default=caller)
    if counts[caller] + 1 >= counts[heaviest]:
        return None
    return next((job.number for job in reversed(waiting) if set(job.callers) == {heaviest}), None)


def _turn_s(turns: int) -> float:
    return FIRST_TURN_S * float(1 << turns)


class _Round:
    """The working state of one decision."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.now_s = snapshot.now_s
        self.free = snapshot.free
        self.places = snapshot.processes - 1
        """Of those that are not new."""
        self.last_turns = dict(snapshot.last_turns)
        running = [job for job in snapshot.jobs if job.since_s is not None]
        self.under_way = Counter(name for job in running for name in set(job.callers))
        self.running = [job for job in running if not job.is_stopping]
        self.coming = len(running) - len(self.running)
        """Processes that will be free soon."""
        self.tried = sum(turns_had(job, self.now_s) > 0 for job in self.running)
        """Of those that run, how many are not new."""
        self.waiting = [job for job in snapshot.jobs if job.since_s is None]
        self.start: list[int] = []
        self.ends_s: list[float] = []
        """Of the turns that begin now."""
        self.stop: list[int] = []

    def decide(self) -> Decision:
        if len(self.running) == self.tried:
            self._begin(range(1), most=1)
        self._begin(range(1, _MANY_TURNS), most=max(1, self.places) - self.tried)
        self._begin(range(1), most=self.free)
        self._begin(range(1, SLOW_TURNS), most=self.free)
        self._give_way()
        ends_s = [*map(self._turn_ends_s, self.running), *self.ends_s]
        again_s = min(ends_s, default=None) if self.waiting else None
        return Decision(start=tuple(self.start), stop=tuple(self.stop), again_s=again_s)

    def _turn_ends_s(self, job: JobView) -> float:
        assert job.since_s is not None
        return job.since_s + _turn_s(turns_had(job, self.now_s))

    def _begin(self, turns: range, *, most: int) -> None:
        """Start so many that have had so many turns, if there are processes for them."""
        for _ in range(min(most, self.free)):
            among = [job for job in self.waiting if job.turns in turns]
            if not among:
                return
            job = min(among, key=self._rank)
            self.waiting.remove(job)
            self.start.append(job.number)
            self.ends_s.append(self.now_s + _turn_s(job.turns))
            self.free -= 1
            self.tried += job.turns > 0
            turn = 1 + max(self.last_turns.values(), default=0)
            for name in set(job.callers):
                self.under_way[name] += 1
                self.last_turns[name] = turn

    def _rank(self, job: JobView) -> tuple[int, int, int, int]:
        running, last = min((self.under_way[x], self.last_turns.get(x, 0)) for x in job.callers)
        return job.turns, running, last, job.number

    def _give_way(self) -> None:
        """Those who wait, and have no process coming, get one of somebody who had more turns."""
        most = self.coming + len(self.running)
        for job in heapq.nsmallest(most, self.waiting, key=self._rank):
            if self.coming:
                self.coming -= 1
                continue
            if not job.turns and self.tried <= self.places:
                continue
            had = ((turns_had(other, self.now_s), other) for other in self.running)
            victims = [other for turns, other in had if turns > job.turns]
            if not victims:
                return
            # The latest loses least.
            latest = max(victims, key=lambda other: (other.since_s or 0.0, other.number))
            self.running.remove(latest)
            self.stop.append(latest.number)
            self.tried -= 1
