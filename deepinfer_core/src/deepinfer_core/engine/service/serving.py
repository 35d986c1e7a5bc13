"""How does an engine serve the process in front of it?

The thread that listens turns messages into commands of the engine's thread; that one sends what
each turn gave. Neither waits for the process in front.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from deepinfer_core.engine.core import Update
from deepinfer_core.engine.engine_thread import Ask, EngineThread
from deepinfer_core.engine.prompts import Prompt
from deepinfer_core.engine.router import Call, Router
from deepinfer_core.engine.service.faults import fault_of
from deepinfer_core.engine.service.figures import figures_of
from deepinfer_core.engine.service.messages import (
    Abort,
    Failed,
    Figures,
    FiguresAsked,
    FromEngine,
    StepDone,
    Stop,
    Submit,
    ToEngine,
)
from deepinfer_core.engine.service.opening import OpenedEngine
from deepinfer_core.engine.service.outbox import Outbox
from deepinfer_core.engine.service.requests import asked
from deepinfer_core.errors import DeepInferError, EngineError
from deepinfer_core.interfaces.async_engine import AbortedBy
from deepinfer_core.telemetry.logs import get_logger

__all__ = ["EngineService"]


class EngineService:
    """An engine behind a channel.

    Args:
        opened: the engine; the service's thread alone uses it from now on.
        send: takes a message from any thread, and never waits.
    """

    def __init__(self, opened: OpenedEngine, send: Callable[[FromEngine], None]) -> None:
        self._engine = opened.engine
        self._opened = opened
        self._send = send
        self._aborters: dict[int, AbortedBy] = {}
        self._outbox = Outbox(send, self._left, self._aborters.get)
        self._calls: dict[int, Call] = {}
        self._names: dict[int, str] = {}
        self._gone: list[int] = []
        router = Router(opened.engine, _no_text, self._finished)
        self._thread = EngineThread(router, self._flush)

    @property
    def failure(self) -> EngineError | None:
        """Why the engine's thread ended on its own; None if it did not."""
        return self._thread.failure

    def obey(self, message: ToEngine) -> None:
        """Do what the process in front says; called by the thread that listens.

        What fails here without being foreseen is logged and ends nothing but what was asked.
        """
        try:
            self._obey(message)
        except Exception as error:  # noqa: BLE001 - others are in work, whatever this is
            get_logger(__name__).error(
                "message.failed", kind=type(message).__name__, exc_info=error
            )

    def _obey(self, message: ToEngine) -> None:
        if isinstance(message, Submit):
            self._submit(message)
        elif isinstance(message, Abort):
            if (call := self._calls.get(message.number)) is not None:
                self._aborters.setdefault(message.number, message.by)
                self._thread.abort(call, message.number)
        elif isinstance(message, FiguresAsked):
            found = self._engine.instruments.board.read()
            self._send(Figures(message.number, figures_of(found)))
        elif isinstance(message, Stop):
            self.stop(message.reason)

    def stop(self, reason: str) -> None:
        """End everything soon; requests in work are told the reason."""
        self._thread.stop(reason)

    def join(self) -> None:
        """Wait until the engine's thread has ended and given back what it held."""
        self._thread.join()

    def _submit(self, message: Submit) -> None:
        number = message.number
        try:
            prompt, params, options = asked(message)
            call = Call(receive=self._outbox.receive, drop=partial(self._outbox.fail, number))
            self._calls[number] = call
            self._names[number] = message.name
            self._thread.ask(
                Ask(call=call, index=number, prompt=prompt, params=params, options=options)
            )
        except Exception as error:
            # The outbox is the engine thread's.
            self._left(number)
            self._send(StepDone([], [], [], [Failed(number, fault_of(error))]))
            if not isinstance(error, DeepInferError):
                raise

    def _flush(self) -> None:
        engine = self._engine
        started, engine.started = engine.started, []
        began_s = time.monotonic()
        if self._outbox.flush(started):
            engine.instruments.sent(time.monotonic() - began_s)
        gone, self._gone = self._gone, []
        for one in gone:
            self._names.pop(one, None)
            self._aborters.pop(one, None)

    def _finished(self, update: Update) -> None:
        self._opened.finished(update, self._names.get(update.delta.index, ""))

    def _left(self, number: int) -> None:
        self._calls.pop(number, None)
        self._gone.append(number)  # its end is still to be told to those who observe


def _no_text(prompt: Prompt) -> list[int]:
    """Requests come as token ids."""
    raise EngineError("a service's engine takes token ids")
