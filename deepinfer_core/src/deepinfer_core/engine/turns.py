"""How do threads take turns at one thing, so that none waits for ever and none can lock itself out?

First come, first served: whoever ends a turn hands it to the thread that has waited longest. A
plain lock would go to whoever asks first once it is free, which is most often the thread that just
had it.

A signal handler, or the collection of garbage, may run in the middle of a turn of its own thread,
or while that thread comes or goes. It must not wait then: ``soon`` never does.

A handler may also raise there. Coming and going start again where one was interrupted, and what an
interrupt in front of that leaves is put right by ``give_up``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, get_ident, local

from deepinfer_core.errors import EngineError

__all__ = ["Turns"]


class Turns:
    """Whose turn it is."""

    def __init__(self) -> None:
        self._owner: int | None = None
        self._queue: deque[tuple[int, Lock]] = deque()
        # Held for a few instructions only, while owner and queue are looked at or changed.
        self._guard = Lock()
        self._mine = local()
        self._later: deque[Callable[[], None]] = deque()

    @property
    def is_mine(self) -> bool:
        """Whether this thread has its turn."""
        return getattr(self._mine, "state", None) == "inside"

    @property
    def is_moving(self) -> bool:
        """Whether this was called in the middle of this thread's coming or going."""
        return getattr(self._mine, "state", None) == "moving"

    @contextmanager
    def take(self) -> Iterator[None]:
        """Wait for a turn and have it while the block runs; a turn within a turn is part of it.

        Raises:
            EngineError: the thread comes or goes just now; see ``is_moving``.
        """
        if self.is_mine:
            yield
            return
        if self.is_moving:
            raise EngineError("a signal handler cannot wait here", hint="use soon")
        turn = self._mine.turn = object()
        self._mine.state = "moving"
        try:
            self._enter()
            self._mine.state = "inside"
            yield
            self._run_later()
        finally:
            # An interrupted block may come here late, when its turn was given up.
            if getattr(self._mine, "turn", None) is turn:
                self._end()

    def give_up(self) -> None:
        """Have no turn any more, wherever an interrupt came; for who is in the middle of none."""
        self._mine.turn = None
        if getattr(self._mine, "state", None) is not None:
            self._end()

    def soon(self, action: Callable[[], None]) -> None:
        """Run something in a turn: now if nobody has one, else at the end of the one that runs."""
        self._later.append(action)
        self._catch_up()

    def _end(self) -> None:
        self._mine.state = "moving"
        try:
            self._leave()
        except BaseException:  # a signal handler raised in the middle of it
            self._leave()
            raise
        finally:
            self._mine.state = None
        self._catch_up()

    def _enter(self) -> None:
        with self._guard:
            if self._owner is None:
                self._owner = get_ident()
                return
            ticket = Lock()
            ticket.acquire()
            self._queue.append((get_ident(), ticket))
        ticket.acquire()  # until it is handed over

    def _leave(self) -> None:
        """Hand the turn over, or leave the queue: an interrupt may come before it is one's turn."""
        me = get_ident()
        with self._guard:
            if self._owner != me:
                # The owner stands here if this thread was interrupted while it made way.
                gone = {me, self._owner}
                for ident, ticket in self._queue:
                    if ident == self._owner and ticket.locked():
                        ticket.release()
                self._queue = deque(entry for entry in self._queue if entry[0] not in gone)
                return
            if not self._queue:
                self._owner = None
                return
            self._owner, ticket = self._queue[0]
            ticket.release()
            self._queue.popleft()

    def _catch_up(self) -> None:
        """Run what came too late for the turn at whose end it was to run."""
        while self._later and getattr(self._mine, "state", None) is None:
            self._mine.state = "moving"
            try:
                if not self._enters_at_once():
                    return  # whoever is there looks again when it goes
                self._mine.state = "inside"
                self._run_later()
            finally:
                self._mine.state = "moving"
                if self._owner == get_ident():
                    self._leave()
                self._mine.state = None

    def _enters_at_once(self) -> bool:
        # This may be in the middle of something that holds the guard, in this very thread.
        if not self._guard.acquire(blocking=False):
            return False
        try:
            if self._owner is not None:
                return False
            self._owner = get_ident()
            return True
        finally:
            self._guard.release()

    def _run_later(self) -> None:
        while self._later:
            self._later.popleft()()
