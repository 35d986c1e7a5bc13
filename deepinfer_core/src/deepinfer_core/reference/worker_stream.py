"""How does a CPU play the part of a device that works while the host goes on?

One thread takes pieces of work in order. torch lets go of the interpreter inside its operators, so
the host's Python runs beside them.

Whoever waits may be interrupted by a signal at any instruction, and that must not harm the thread.
So nobody waits on ``threading.Event`` or ``Condition``: they are Python code around a lock that
both sides take, and an interrupt in the middle of it leaves that lock as it is.

A forked process has no such thread: work for it is refused there, and never waited for.
"""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections.abc import Callable

from deepinfer_core.errors import EngineError
from deepinfer_core.interfaces.device import Event, Stream

__all__ = ["WorkerStream"]


class _Task(Event):
    def __init__(self, work: Callable[[], None]) -> None:
        self._work: Callable[[], None] | None = work
        self._error: Exception | None = None
        self._has_ended = False
        # Held until the work is done, by nobody in particular.
        self._undone = threading.Lock()
        self._undone.acquire()
        self._process_id = os.getpid()

    def run(self) -> None:
        work, self._work = self._work, None
        assert work is not None
        try:
            work()
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error
        except BaseException as error:  # noqa: BLE001 - a component may ask the thread to exit
            self._error = EngineError(f"work on the device ended with {type(error).__name__}")
            self._error.__cause__ = error
        finally:
            # What the work refers to must not live on in this frame while the thread waits.
            del work
            self._has_ended = True
            self._undone.release()

    @property
    def is_done(self) -> bool:
        return self._has_ended

    def wait(self) -> None:
        # Once it is done nobody looks at the lock, so an interrupt may leave it in any state.
        if not self._has_ended:
            if os.getpid() != self._process_id:
                raise _forked()
            with self._undone:
                pass
        if self._error is not None:
            raise self._error


class WorkerStream(Stream):
    """A thread of its own, started with the first work, ended by ``close`` or with its owner."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._process_id = 0
        self._is_closed = False

    def submit(self, work: Callable[[], None]) -> Event:
        """Queue work; see ``Stream``."""
        if self._is_closed:
            raise EngineError("this stream was closed", hint="make a new one")
        if self._is_elsewhere:
            raise _forked()
        if self._thread is None:
            self._process_id = os.getpid()
            self._thread = threading.Thread(
                target=_play, args=(self._tasks,), name="deepinfer-stream", daemon=True
            )
            self._thread.start()
            weakref.finalize(self, _end, self._tasks, self._thread)
        task = _Task(work)
        self._tasks.put(task)
        return task

    def drain(self) -> None:
        """Wait for the end of an empty piece of work."""
        if self._thread is not None and not self._is_closed and not self._is_elsewhere:
            self.submit(lambda: None).wait()

    def close(self) -> None:
        """End the thread behind its last work."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._thread is not None and not self._is_elsewhere:
            _end(self._tasks, self._thread)

    @property
    def _is_elsewhere(self) -> bool:
        """Whether the thread runs in the process that this one was forked from."""
        return self._thread is not None and os.getpid() != self._process_id


def _forked() -> EngineError:
    return EngineError(
        "this stream belongs to the process that this one was forked from",
        hint="load the model in this process, or start it with spawn",
    )


def _end(tasks: queue.SimpleQueue[_Task | None], thread: threading.Thread) -> None:
    """Let the thread end behind its last work, and wait for that.

    Also when the process ends: a thread that is cut off within an operator takes the process down.
    """
    tasks.put(None)
    if thread is not threading.current_thread():
        thread.join()


def _play(tasks: queue.SimpleQueue[_Task | None]) -> None:
    while True:
        task = tasks.get()
        if task is None:
            return
        task.run()
        del task
