"""How are calls made that may hang, by callers that may not, on memory that must not be touched?

A lane is a thread and a piece of memory. A caller takes one, lets its thread call the pool, and
waits until its deadline. If the call is not back by then the caller goes away, and the lane stays
taken until the call has come back: until then the library may still write into its memory, and into
nobody else's. When callers have left every lane like that, the pool hangs, and the next ones are
refused at once instead of waiting as well.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import TypeVar

from deepinfer_core.interfaces.kv_store import Outcome
from deepinfer_core.stores.calls import CLOSED, LATE

__all__ = ["Lane", "Lanes", "NoAnswer"]

Value = TypeVar("Value")

_HANGS = Outcome(status="unavailable", reason="the pool has not answered earlier calls yet")


class NoAnswer(Exception):
    """A call was not made, or has not come back.

    Args:
        outcome: of the blocks it was about.
    """

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


class Lane:
    """A thread and its memory; ``Lanes`` says who may use them.

    Args:
        address: of the memory.
        view: the memory.
    """

    def __init__(self, address: int, view: memoryview) -> None:
        self.address, self.view = address, view
        self.work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.is_held = False
        self.is_running = False
        threading.Thread(target=self._run, name="mooncake-lane", daemon=True).start()

    @property
    def is_free(self) -> bool:
        """Whether nobody uses it."""
        return not self.is_held and not self.is_running

    @property
    def is_left(self) -> bool:
        """Whether its call still runs, and nobody waits for it."""
        return self.is_running and not self.is_held

    def _run(self) -> None:
        while (work := self.work.get()) is not None:
            work()


class Lanes:
    """All lanes of one client of a pool.

    Args:
        count: calls in flight.
        lane_bytes: memory of each, rounded up to pages.
    """

    def __init__(self, count: int, lane_bytes: int) -> None:
        self.lane_bytes = -(-lane_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self.all_bytes = count * self.lane_bytes
        memory = mmap.mmap(-1, self.all_bytes)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        whole = memoryview(memory)
        starts = range(0, self.all_bytes, self.lane_bytes)
        self._lanes = [
            Lane(self.address + start, whole[start : start + self.lane_bytes]) for start in starts
        ]
        self._changed = threading.Condition()
        self._finish: Callable[[], None] | None = None
        self._is_closed = False

    @contextmanager
    def take(self, deadline_s: float) -> Iterator[Lane]:
        """Use a lane; as a context.

        Raises:
            NoAnswer: none was free in time, none will be, or they are closed.
        """
        with self._changed:
            while (lane := self._free_lane()) is None:
                remaining_s = deadline_s - time.monotonic()
                if remaining_s <= 0:
                    raise NoAnswer(LATE)
                self._changed.wait(_waitable(remaining_s))
            lane.is_held = True
        try:
            yield lane
        finally:
            self._release(lane, is_held=False)

    def call(self, lane: Lane, work: Callable[[], Value], deadline_s: float) -> Value:
        """Let the thread of a lane that was taken do something, and wait for it.

        Args:
            lane: whose memory the work may use, also when nobody waits for it any more.
            work: calls the pool.
            deadline_s: until when its answer is waited for.

        Raises:
            NoAnswer: it has not come back; or the library broke.
        """
        answers: list[Value] = []
        problems: list[Exception] = []
        done = threading.Event()

        def run() -> None:
            try:
                answers.append(work())
            except Exception as error:  # noqa: BLE001 - foreign code
                problems.append(error)
            self._release(lane, is_running=False)
            done.set()

        with self._changed:
            lane.is_running = True
        lane.work.put(run)
        if not done.wait(_waitable(deadline_s - time.monotonic())):
            raise NoAnswer(LATE)
        if problems:
            reason = f"the pool's client raised {type(problems[0]).__name__}"
            raise NoAnswer(Outcome(status="unavailable", reason=reason)) from problems[0]
        return answers[0]

    def start(self, work: Callable[[Lane], None]) -> bool:
        """Let a free lane do something that nobody waits for.

        Args:
            work: calls the pool; what it raises is lost.

        Returns:
            Whether a lane was free.
        """
        with self._changed:
            lane = next((one for one in self._lanes if one.is_free), None)
            if lane is None or self._is_closed:
                return False
            lane.is_held = True

        def run(taken: Lane = lane) -> None:
            with suppress(Exception):  # foreign code; the next call meets its problem again
                work(taken)
            self._release(taken, is_held=False)

        lane.work.put(run)
        return True

    def close(self, finish: Callable[[], None], wait_s: float) -> None:
        """Let nobody take a lane any more, and end what they were for.

        Args:
            finish: called when no lane is used any more; here, or by the last one to come back.
            wait_s: how long that is waited for.
        """
        with self._changed:
            self._finish, self._is_closed = finish, True
            self._changed.notify_all()
            self._changed.wait_for(self._all_are_free, timeout=wait_s)
        self._end_if_free()

    def _free_lane(self) -> Lane | None:
        if self._is_closed:
            raise NoAnswer(CLOSED)
        if all(lane.is_left for lane in self._lanes):
            raise NoAnswer(_HANGS)
        return next((lane for lane in self._lanes if lane.is_free), None)

    def _release(
        self, lane: Lane, *, is_held: bool | None = None, is_running: bool | None = None
    ) -> None:
        with self._changed:
            lane.is_held = lane.is_held if is_held is None else is_held
            lane.is_running = lane.is_running if is_running is None else is_running
            self._changed.notify_all()
        self._end_if_free()

    def _all_are_free(self) -> bool:
        return all(lane.is_free for lane in self._lanes)

    def _end_if_free(self) -> None:
        with self._changed:
            if self._finish is None or not self._all_are_free():
                return
            finish, self._finish = self._finish, None
        finish()
        for lane in self._lanes:
            lane.work.put(None)


def _waitable(seconds: float) -> float:
    """The same as locks take it."""
    return min(max(seconds, 0.0), threading.TIMEOUT_MAX)
