"""How is one of many stores asked without waiting for it, and when is it late?

Each child has threads of its own, so a child that hangs holds up nobody else; once all of them are
busy and more work waits than they will soon do, it is passed over. How long its answers usually
take is known from those before, by the number of blocks that were asked for.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TypeVar

from deepinfer_core.interfaces.kv_store import KvStore, Outcome
from deepinfer_core.interfaces.kv_upkeep import BlockFacts, Departed, Upkeep

__all__ = ["Child", "ChildFailed"]

_THREADS = 4
_MOST_WAITING = 16
"""Pieces of work that a child has in hand at most."""

_REMEMBERED = 64
"""Answers of each size from which a child's usual time is known."""

_LEAST = 8
"""Answers without which it is not."""

_DOWN_S = 1.0
"""For so long a child that was unavailable is asked only if there is no other."""

Answer = TypeVar("Answer")


class ChildFailed(Exception):
    """A child raised what no store should; the cause says what."""


class Child:
    """One of the stores.

    Args:
        title: how it is called in messages.
        store: open.
        hung_s: once a call takes longer, nothing more is asked until it ends.
        refused: why the store could not be opened; empty: it is open.

    Attributes:
        title: see there.
        store: see there.
        refused: see there; of the last try.
    """

    def __init__(self, title: str, store: KvStore, hung_s: float, refused: str = "") -> None:
        self.title, self.store, self.refused = title, store, refused
        self._upkeep = store if isinstance(store, Upkeep) else None
        self._lock = threading.Lock()
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._in_hand, self._is_closed, self._down_until_s = 0, False, 0.0
        self._hung_s = hung_s
        self._unanswered: dict[object, float] = {}
        self._times_s: dict[tuple[str, int], deque[float]] = {}
        self._problem = ""
        for _ in range(_THREADS):
            threading.Thread(target=self._run, name="kv-child", daemon=True).start()

    @property
    def is_down(self) -> bool:
        """Whether it has been unavailable a moment ago."""
        return time.monotonic() < self._down_until_s

    @property
    def problem(self) -> str:
        """What it raised last; empty: nothing."""
        with self._lock:
            return self._problem

    def ask(
        self,
        kind: str,
        blocks: int,
        call: Callable[[Child], Answer],
        answer: Callable[[Answer | ChildFailed], None],
    ) -> bool:
        """Have a call made by one of the child's threads.

        Args:
            kind: calls whose times are compared.
            blocks: that it is about.
            call: what is done with the child.
            answer: gets what came of it, in that thread.

        Returns:
            False: it hangs, too much is waiting, or it is closed; nothing will be done.
        """
        with self._lock:
            if self._is_closed or self._in_hand >= _MOST_WAITING or self._is_hung():
                return False
            self._in_hand += 1
            since_s, asked = time.monotonic(), object()
            self._unanswered[asked] = since_s

        def work() -> None:
            found = self._try(call)
            with self._lock:
                del self._unanswered[asked]
            self._note_time(kind, blocks, time.monotonic() - since_s)
            answer(found)

        self._work.put(work)
        return True

    def describe(
        self, group: str, keys: Sequence[bytes], deadline_s: float
    ) -> list[BlockFacts | None]:
        """What its fragments are kept under; nothing is known of a store without upkeep."""
        if self._upkeep is None:
            return [None] * len(keys)
        return self._upkeep.describe(group, keys, deadline_s=deadline_s)

    def survey(self, group: str, after: bytes, most: int, deadline_s: float) -> list[BlockFacts]:
        """Its fragments in order of their keys; of a store without upkeep none."""
        if self._upkeep is None:
            return []
        return self._upkeep.survey(group, after=after, most=most, deadline_s=deadline_s)

    def peek(
        self,
        group: str,
        keys: Sequence[bytes],
        into: Sequence[bytearray | memoryview],
        deadline_s: float,
    ) -> list[Outcome]:
        """Its fragments; a store without upkeep takes that for their use."""
        if self._upkeep is None:
            return self.store.load(group, keys, into, deadline_s=deadline_s)
        return self._upkeep.peek(group, keys, into, deadline_s=deadline_s)

    def departed(self) -> list[Departed]:
        """Fragments that it has let go by itself; a store without upkeep does not tell."""
        return self._upkeep.departed() if self._upkeep is not None else []

    def discard(self, group: str, keys: Sequence[bytes], deadline_s: float) -> int:
        """Remove single fragments; from a store without upkeep they go when they expire."""
        if self._upkeep is None:
            return 0
        return self._upkeep.discard(group, keys, deadline_s=deadline_s)

    def mark_down(self) -> None:
        """It was unavailable."""
        self._down_until_s = time.monotonic() + _DOWN_S

    def usual_s(self, kind: str, blocks: int) -> float | None:
        """What an answer about so many blocks takes at most, in 19 of 20 cases; None: unknown."""
        with self._lock:
            times = self._times_s.get((kind, blocks.bit_length()), ())
            return sorted(times)[len(times) * 19 // 20] if len(times) >= _LEAST else None

    def close(self) -> None:
        """End its threads once they have done what they have in hand."""
        with self._lock:
            self._is_closed = True
        for _ in range(_THREADS):
            self._work.put(None)

    def _note_time(self, kind: str, blocks: int, seconds: float) -> None:
        key = (kind, blocks.bit_length())
        with self._lock:
            self._times_s.setdefault(key, deque(maxlen=_REMEMBERED)).append(seconds)

    def _try(self, call: Callable[[Child], Answer]) -> Answer | ChildFailed:
        try:
            return call(self)
        except Exception as error:  # noqa: BLE001 - stores may be anybody's
            failed = ChildFailed(f"{self.title}: {type(error).__name__}")
            failed.__cause__ = error
            if not isinstance(error, ValueError):
                with self._lock:
                    self._problem = type(error).__name__
            return failed

    def _is_hung(self) -> bool:
        oldest_s = min(self._unanswered.values(), default=math.inf)
        return time.monotonic() - oldest_s >= self._hung_s

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            finally:
                with self._lock:
                    self._in_hand -= 1
