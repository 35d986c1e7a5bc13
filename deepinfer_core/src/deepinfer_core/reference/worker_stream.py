"""How does a CPU play the part of a device that works while the host goes on?

One thread takes pieces of work in order. torch lets go of the interpreter inside its operators, so
the host's Python runs beside them.
"""

from __future__ import annotations

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
        self._is_done = threading.Event()

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
            self._is_done.set()

    def wait(self) -> None:
        self._is_done.wait()
        if self._error is not None:
            raise self._error


class WorkerStream(Stream):
    """A thread of its own, started with the first work, ended by ``close`` or with its owner."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def submit(self, work: Callable[[], None]) -> Event:
        """Queue work; see ``Stream``."""
        if self._is_closed:
            raise EngineError("this stream was closed", hint="make a new one")
        if self._thread is None:
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
        if self._thread is not None and not self._is_closed:
            self.submit(lambda: None).wait()

    def close(self) -> None:
        """End the thread behind its last work."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._thread is not None:
            _end(self._tasks, self._thread)


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
