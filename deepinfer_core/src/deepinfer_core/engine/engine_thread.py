"""How does an engine run in a thread of its own, for callers that must not wait?

Callers put commands into a queue and never touch the engine. The thread obeys them between steps,
runs steps while there is work, and sleeps in the queue otherwise. What a step gave goes where the
call of each request says; behind each turn the thread says that there is no more for now, so that
all of it can be handed on at once.

Nothing the thread holds leads to the objects that users hold, so that letting go of those ends what
they asked for, and the thread.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread

from deepinfer_core.engine.prompts import Prompt
from deepinfer_core.engine.request_options import RequestOptions
from deepinfer_core.engine.router import Call, Router
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.waiters import Waiter, wake
from deepinfer_core.errors import EngineError
from deepinfer_core.telemetry.logs import get_logger

__all__ = ["Ask", "EngineThread"]

_EXIT_WAIT_S = 5.0
"""How long the end of the program waits for the thread; then it goes on without it. Work on the
device is the stream's: whoever plays one with a thread waits for that as long as it takes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ask:
    """A request.

    Attributes:
        call: where answers go.
        index: place among the prompts of the caller.
        prompt: a text, or token ids.
        params: how to draw.
        options: how it is treated.
    """

    call: Call
    index: int
    prompt: Prompt
    params: SamplingParams
    options: RequestOptions


@dataclass(frozen=True, slots=True)
class _Abort:
    call: Call
    index: int
    sample: int | None


@dataclass(frozen=True, slots=True)
class _Stop:
    reason: str


class EngineThread:
    """The loop of steps, and the door to it.

    Args:
        router: over the engine; this thread alone uses it from now on.
        after_turn: called by the thread behind each step, and behind commands without a step.
    """

    def __init__(self, router: Router, after_turn: Callable[[], None]) -> None:
        self._router = router
        self._after_turn = after_turn
        # The queue's put may be called while garbage is collected in the middle of another put.
        self._commands: SimpleQueue[Ask | _Abort | _Stop] = SimpleQueue()
        self._reason: str | None = None
        self._failure: EngineError | None = None
        self._lock = Lock()
        self._takes_requests = True
        self._has_ended = False
        self._for_end: list[Waiter] = []
        self._process_id = os.getpid()
        # A daemon, so that a step that hangs does not keep the program from ending.
        self._thread = Thread(target=self._run, name="deepinfer-engine", daemon=True)
        atexit.register(self._at_exit)
        self._thread.start()

    @property
    def failure(self) -> EngineError | None:
        """Why the thread ended on its own; None if it did not."""
        return self._failure

    def check(self) -> None:
        """Raise where no request can be taken or answered.

        Raises:
            EngineError: this process was forked from the one that the thread runs in.
        """
        if os.getpid() != self._process_id:
            raise EngineError(
                "this AsyncLLM belongs to the process that this one was forked from",
                hint="make one in this process, or start it with spawn",
            )

    def closed(self) -> EngineError:
        """What to raise when it takes no requests."""
        if self._failure is not None:
            return EngineError(self._failure.message, hint=self._failure.hint)
        return EngineError("this AsyncLLM was closed", hint="make a new one")

    def ask(self, ask: Ask) -> None:
        """Let a request wait for its turn.

        Raises:
            EngineError: the thread has ended, or is about to.
        """
        with self._lock:
            if not self._takes_requests:
                raise self.closed()
            self._commands.put(ask)

    def abort(self, call: Call, index: int, sample: int | None = None) -> None:
        """End a request, or one of its answers, soon."""
        self._commands.put(_Abort(call, index, sample))

    def stop(self, reason: str) -> None:
        """End everything and the thread, soon; requests in work end as aborted."""
        self._commands.put(_Stop(reason))

    async def ended(self) -> None:
        """Wait until the thread holds nothing any more."""
        if os.getpid() != self._process_id:
            return
        with self._lock:
            waiter = None if self._has_ended else Waiter.here()
            if waiter is not None:
                self._for_end.append(waiter)
        if waiter is not None:
            await waiter.future
        # All that the thread had left to do was to wake those who waited.
        self._thread.join()

    def join(self) -> None:
        """The same for a thread that runs no event loop."""
        self._thread.join()

    def _at_exit(self) -> None:
        if os.getpid() == self._process_id:
            self.stop("the program ended")
            self._thread.join(_EXIT_WAIT_S)

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            self._loop()
        except BaseException as error:  # noqa: BLE001 - nobody else would tell those who wait
            failure = error
        try:
            self._close(failure)
        finally:
            atexit.unregister(self._at_exit)
            with self._lock:
                self._has_ended = True
                for_end, self._for_end = self._for_end, []
            wake(for_end)

    def _close(self, failure: BaseException | None) -> None:
        """Whatever happens, everyone is told, and what they are told is handed on."""
        for action in (partial(self._end, failure), self._after_turn):
            try:
                action()
            except BaseException as error:  # noqa: BLE001 - nobody else would tell
                get_logger(__name__).error("engine.close_failed", exc_info=error)

    def _loop(self) -> None:
        while self._reason is None:
            self._obey_all(wait=not self._router.has_work)
            if self._reason is None and self._router.has_work:
                self._step()
            self._after_turn()

    def _step(self) -> None:
        try:
            self._router.step()
        except Exception as error:  # noqa: BLE001 - components are foreign code
            # The router told everyone and emptied the engine; it can go on.
            get_logger(__name__).error("engine.step_failed", exc_info=error)

    def _obey_all(self, *, wait: bool = False) -> None:
        try:
            command = self._commands.get(block=wait)
            while True:
                self._obey(command)
                command = self._commands.get_nowait()
        except Empty:
            return

    def _obey(self, command: Ask | _Abort | _Stop) -> None:
        if isinstance(command, Ask):
            self._queue(command)
        elif isinstance(command, _Abort):
            self._router.abort(command.call, command.index, command.sample)
        else:
            self._reason = command.reason

    def _queue(self, ask: Ask) -> None:
        try:
            self._router.submit(ask.call, ask.index, ask.prompt, ask.params, ask.options)
        except Exception as error:  # noqa: BLE001 - of any type of prompt, or a foreign component
            get_logger(__name__).error("request.not_queued", exc_info=error)
            self._router.end(ask.call)
            failure = EngineError(
                f"a request could not be queued: {_text(error)}", hint="ask again"
            )
            failure.__cause__ = error
            ask.call.drop(failure)

    def _end(self, failure: BaseException | None) -> None:
        if failure is not None:
            get_logger(__name__).error("engine.died", exc_info=failure)
            self._failure = EngineError(
                f"the engine's thread ended: {_text(failure)}", hint="make a new AsyncLLM"
            )
            self._failure.__cause__ = failure
        with self._lock:
            self._takes_requests = False
        try:
            if failure is None:
                reason = f"{self._reason} while this request ran"
                self._router.end_all(EngineError(reason, hint="ask again"))
        finally:
            # Whatever happened above, nobody is left waiting.
            try:
                self._router.close(self._reason or "the engine's thread ended")
            finally:
                self._drop_unread()

    def _drop_unread(self) -> None:
        """Tell those whose requests were never looked at."""
        while True:
            try:
                command = self._commands.get_nowait()
            except Empty:
                return
            if isinstance(command, Ask):
                command.call.drop(self.closed())


def _text(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
