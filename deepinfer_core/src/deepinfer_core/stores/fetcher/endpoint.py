"""How is a store called so that neither its errors nor its hanging spread?

Every call has a deadline and an answer for each block. Each kind of call has a circuit of its own,
since a store may find blocks and be unable to load them. A call that has not returned a while after
its deadline hangs: it counts as a failure, and where all threads hang in calls nothing is asked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from deepinfer_core.interfaces.kv_store import KvStore, Outcome, StoreItem
from deepinfer_core.plugin.resolved import describe
from deepinfer_core.stores.breaker import Breaker
from deepinfer_core.telemetry.logs import get_logger

__all__ = ["Endpoint"]

_HUNG_S = 1.0
"""How long behind its deadline a call is waited for."""

_READING = frozenset({"find", "load"})
"""Kinds of calls that the threads which read make."""

_LATE = Outcome(status="timeout", reason="the deadline has passed")
_REFUSED = Outcome(status="unavailable", reason="its last calls failed")


@dataclass(slots=True, eq=False)
class _Call:
    kind: str
    deadline_s: float
    is_hung: bool = False


@dataclass(slots=True, eq=False)
class _Kind:
    breaker: Breaker = field(default_factory=Breaker)
    last_problem: str = ""


class Endpoint:
    """One store, open.

    Args:
        store: whose calls these are.
        threads: that look for blocks and load them.
        call_s: longest time that one call is given.
        clock: tells the time.
    """

    def __init__(
        self,
        store: KvStore,
        *,
        threads: int,
        call_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self._threads, self._call_s, self._clock = threads, call_s, clock
        self._lock = threading.Lock()
        self._kinds = {kind: _Kind() for kind in ("find", "load", "check", "store")}
        self._calls: list[_Call] = []

    def find(self, group: str, keys: Sequence[bytes], by_s: float) -> list[Outcome]:
        """Look for blocks."""
        return self._call("find", len(keys), by_s, lambda s: self._find(group, keys, s))

    def load(
        self, group: str, keys: Sequence[bytes], views: Sequence[memoryview], by_s: float
    ) -> list[Outcome]:
        """Load blocks."""
        return self._call("load", len(keys), by_s, lambda s: self._load(group, keys, views, s))

    def check(self, group: str, keys: Sequence[bytes], by_s: float) -> list[Outcome]:
        """Look for blocks that are to be stored."""
        return self._call("check", len(keys), by_s, lambda s: self._find(group, keys, s))

    def keep(self, group: str, items: Sequence[StoreItem], by_s: float) -> list[Outcome]:
        """Store blocks. A store that is full says ``unavailable`` as well, and is well."""
        return self._call("store", len(items), by_s, lambda s: self._keep(group, items, s))

    def would_let(self, *kinds: str) -> bool:
        """Whether calls of these kinds would be made now."""
        now_s = self._clock()
        with self._lock:
            if self._all_hang() and not _READING.isdisjoint(kinds):
                return False
            return all(self._kinds[one].breaker.would_let(now_s) for one in kinds)

    def watch(self) -> None:
        """Note calls that hang."""
        now_s = self._clock()
        with self._lock:
            for call in self._calls:
                if not call.is_hung and now_s >= call.deadline_s + _HUNG_S:
                    call.is_hung = True
                    self._failed(call.kind, "a call hangs", now_s)
            if self._all_hang():
                for kind in _READING:
                    self._kinds[kind].breaker.trip(now_s)
                    self._kinds[kind].last_problem = "every thread hangs in a call"

    def problem(self) -> str:
        """Why it is not asked; empty: it is."""
        with self._lock:
            found = [
                f"{kind}: {one.last_problem}"
                for kind, one in self._kinds.items()
                if one.breaker.is_open
            ]
        return "; ".join(found)

    def _all_hang(self) -> bool:
        reading = [one for one in self._calls if one.kind in _READING]
        return len(reading) >= self._threads and all(one.is_hung for one in reading)

    def _find(self, group: str, keys: Sequence[bytes], deadline_s: float) -> list[Outcome]:
        return self.store.find(group, keys, deadline_s=deadline_s)

    def _load(
        self, group: str, keys: Sequence[bytes], views: Sequence[memoryview], deadline_s: float
    ) -> list[Outcome]:
        return self.store.load(group, keys, views, deadline_s=deadline_s)

    def _keep(self, group: str, items: Sequence[StoreItem], deadline_s: float) -> list[Outcome]:
        return self.store.store(group, items, deadline_s=deadline_s)

    def _call(
        self, kind: str, count: int, by_s: float, call: Callable[[float], list[Outcome]]
    ) -> list[Outcome]:
        now_s = self._clock()
        deadline_s = min(by_s, now_s + self._call_s)
        if deadline_s <= now_s:
            return [_LATE] * count  # nobody's fault but of whoever waited
        with self._lock:
            if not self._kinds[kind].breaker.let(now_s):
                return [_REFUSED] * count
        with self._noted(kind, deadline_s):
            try:
                outcomes = call(deadline_s)
                if len(outcomes) != count:
                    raise ValueError(f"{count} blocks, found {len(outcomes)} outcomes")
            except BaseException as error:  # noqa: BLE001 - stores are foreign code
                get_logger(__name__).error("store.failed", call=kind, exc_info=error)
                outcomes = [Outcome(status="unavailable", reason=describe(error))] * count
                self._judge(kind, outcomes[:1], is_raised=True)
            else:
                self._judge(kind, outcomes)
        return outcomes

    @contextmanager
    def _noted(self, kind: str, deadline_s: float) -> Iterator[None]:
        call = _Call(kind, deadline_s)
        with self._lock:
            self._calls.append(call)
        try:
            yield
        finally:
            with self._lock:
                self._calls.remove(call)

    def _judge(self, kind: str, outcomes: Sequence[Outcome], *, is_raised: bool = False) -> None:
        """A call in which nothing was answered has failed."""
        bad = ("timeout",) if kind == "store" and not is_raised else ("timeout", "unavailable")
        with self._lock:
            if outcomes and all(one.status in bad for one in outcomes):
                self._failed(kind, outcomes[0].reason or outcomes[0].status, self._clock())
            else:
                self._kinds[kind].breaker.succeeded()

    def _failed(self, kind: str, problem: str, now_s: float) -> None:
        self._kinds[kind].last_problem = problem
        self._kinds[kind].breaker.failed(now_s)
