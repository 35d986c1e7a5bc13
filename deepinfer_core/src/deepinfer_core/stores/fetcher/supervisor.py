"""How does there come to be a fetcher, and another one when it dies?

A thread starts it, listens to it and waits for its end. The first one must open the store; whoever
waits for that is told why it did not. One that dies later is started again after a while; if that
happens time after time, it is given up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Condition, Thread

from deepinfer_core import errors
from deepinfer_core.channel.restarts import Restarts
from deepinfer_core.errors import DeepInferError, EngineError
from deepinfer_core.stores.fetcher.messages import (
    Begin,
    FromFetcher,
    Opened,
    OpenFailed,
    Stop,
    ToFetcher,
)
from deepinfer_core.stores.fetcher.process import FetcherProcess
from deepinfer_core.telemetry.logs import get_logger

__all__ = ["Supervisor"]

_STOP_S = 2.0
"""How long a fetcher has to write what was handed over, when it is told to end."""

_END_S = 8.0
"""And to close its stores behind that; then it is ended by force."""


class Supervisor:
    """Keeps one fetcher running. Whoever reads or calls holds the lock, unless told otherwise.

    Args:
        memory: descriptor of the shared memory; needed until ``close`` has returned.
        changed: the lock, which is notified of everything that happens.
        begin: what a new fetcher is told first.
        heard: told everything else that it says.
        gone: told that it has ended and writes nowhere any more.
        restarts: when it is started again.

    Attributes:
        is_open: whether a fetcher has its store open, and is not about to end.
        problem: why it is not; empty: it is.
        restarted: how often it was started again.
        process_id: of the fetcher; None while there is none.
    """

    def __init__(
        self,
        memory: int,
        changed: Condition,
        *,
        begin: Callable[[], Begin],
        heard: Callable[[FromFetcher], None],
        gone: Callable[[], None],
        restarts: Restarts,
    ) -> None:
        self.is_open = False
        self.problem = "the store is being opened"
        self.restarted = 0
        self.process_id: int | None = None
        self._memory, self._changed, self._restarts = memory, changed, restarts
        self._begin, self._heard, self._gone = begin, heard, gone
        self._fetcher: FetcherProcess | None = None
        self._was_open = self._is_closing = False
        self._failure: DeepInferError | None = None
        self._opened_s = 0.0
        self._thread = Thread(target=self._supervise, name="deepinfer-fetcher", daemon=True)
        self._thread.start()

    def send(self, message: ToFetcher) -> None:
        """Say something, without waiting; nothing happens if nobody is there."""
        if self._fetcher is not None:
            self._fetcher.send(message)

    def await_opening(self, seconds: float) -> None:
        """Wait until the first fetcher has opened its store; without the lock.

        Raises:
            DeepInferError: why it has not.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._was_open or self._failure, seconds)
            failure = self._failure
            if self._was_open:
                return
        self.close()
        raise failure or EngineError(f"the store did not open within {seconds:g} s")

    def close(self) -> None:
        """End the fetcher; without the lock. May be called again."""
        with self._changed:
            self._is_closing, self.is_open, self.problem = True, False, "it was closed"
            self.send(Stop(time.monotonic() + _STOP_S))
            self._changed.notify_all()
        self._thread.join(_STOP_S + _END_S)
        if (fetcher := self._fetcher) is not None:
            fetcher.kill()
            self._thread.join()

    def _supervise(self) -> None:
        while True:
            self._opened_s = 0.0
            why = self._run()
            with self._changed:
                self.is_open, self.process_id = False, None
                ready_s = time.monotonic() - self._opened_s if self._opened_s else 0.0
                wait_s = self._restarts.wait_s(ready_s) if self._was_open else None
                if not self._is_closing:
                    self._tell(why, wait_s)
                self._changed.notify_all()
                if self._changed.wait_for(lambda: self._is_closing, wait_s or 0.0):
                    return
                if wait_s is None:
                    return
                self.restarted += 1

    def _tell(self, why: str, wait_s: float | None) -> None:
        """A fetcher has ended, and was not told to."""
        self.problem = why if wait_s is not None else f"{why}; it is not started again"
        if self._was_open:
            get_logger(__name__).error("fetcher.died", reason=why, restart_in_s=wait_s)
        else:
            self._failure = self._failure or EngineError(f"no store was opened: {why}")

    def _run(self) -> str:
        """Start a fetcher and listen until it ends; why it ended."""
        try:
            fetcher = FetcherProcess(self._memory)
        except OSError as error:
            return f"the fetcher cannot be started: {error}"
        with self._changed:
            self._fetcher, self._failure = fetcher, None
            self.process_id = fetcher.process_id
            fetcher.send(self._begin())
            if self._is_closing:
                fetcher.send(Stop(0.0))
        for message in fetcher.messages():
            with self._changed:
                self._note(message)
                self._changed.notify_all()
        with self._changed:
            self.is_open = False
        how = fetcher.kill()
        with self._changed:
            self._fetcher = None
            self._gone()
            return str(self._failure) if self._failure else f"the fetcher died: {how}"

    def _note(self, message: FromFetcher) -> None:
        if isinstance(message, Opened):
            self._opened_s, self._was_open = time.monotonic(), True
            if not self._is_closing:
                self.is_open, self.problem = True, ""
        elif isinstance(message, OpenFailed):
            known = message.error in errors.__all__
            kind = getattr(errors, message.error) if known else EngineError
            self._failure = kind(message.message, hint=message.hint)
        self._heard(message)
