"""How is an engine used that works in a process of its own?

``EngineProcess`` starts it, hands requests to it and items back, and starts another one if it dies.
All of it happens on the event loop that it was made on, and none of it makes that loop wait for the
engine.

The first start must succeed; whoever waits for it is told why it did not. An engine that dies later
takes the requests in work with it, each with an error that says so (an ``EngineUnavailable``: the
request is not to blame, and may be asked again), and is started again after a while; if that fails
time after time, it is given up.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from deepinfer_core.channel.restarts import Restarts
from deepinfer_core.config import LoadedSettings
from deepinfer_core.engine.service.faults import error_of
from deepinfer_core.engine.service.figures import series_of
from deepinfer_core.engine.service.messages import (
    FRONT_LANGUAGE,
    Abort,
    Figure,
    Figures,
    FiguresAsked,
    FromEngine,
    LoadFailed,
    Loading,
    Ready,
    Start,
    StepDone,
    Stop,
    ToEngine,
)
from deepinfer_core.engine.service.requests import submit_message
from deepinfer_core.errors import DeepInferError, EngineError, EngineUnavailable
from deepinfer_core.interfaces.async_engine import (
    AsyncEngine,
    EngineFacts,
    EngineState,
    GenerateRequest,
    Item,
)
from deepinfer_core.server.child_process import ChildProcess
from deepinfer_core.server.figure_text import text_of
from deepinfer_core.server.live_request import LiveRequest
from deepinfer_core.server.live_requests import LiveRequests
from deepinfer_core.server.load_report import LoadReport
from deepinfer_core.server.questions import Questions
from deepinfer_core.server.unavailable import cut_off, lost, not_ready
from deepinfer_core.telemetry.logs import get_logger
from deepinfer_core.telemetry.progress import ProgressConsumer, ProgressEvent

__all__ = ["ENGINE_COMMAND", "EngineProcess"]

ENGINE_COMMAND = (sys.executable, "-P", "-m", "deepinfer_core.engine.service.child")
"""The engine's program."""

_FIGURES_WAIT_S = 5.0
_STOP_WAIT_S = 10.0
"""How long an engine may take to give back what it holds; then it is ended by force."""


class EngineProcess(AsyncEngine):
    """An engine in a process of its own, started again if it dies.

    Args:
        loaded: settings of the engine.
        progress: told about the first loading.
        command: the engine's program; tests have others.
        restarts: when it is started again; None: as ``Restarts`` says.

    Attributes:
        report: how far the loading is, or how the last one went.
    """

    def __init__(
        self,
        loaded: LoadedSettings,
        *,
        progress: ProgressConsumer | None = None,
        command: Sequence[str] = ENGINE_COMMAND,
        restarts: Restarts | None = None,
    ) -> None:
        self.report = LoadReport()
        self._loaded = loaded
        self._progress = progress
        self._command = command
        self._restarts = restarts or Restarts()
        self._requests = LiveRequests(loaded.settings.engine.max_queued)
        self._state: EngineState = "loading"
        self._is_draining = False
        self._closing = asyncio.Event()
        self._facts: EngineFacts | None = None
        self._ready_since_s: float | None = None
        self._load_failure: DeepInferError | None = None
        self._child: ChildProcess[ToEngine, FromEngine] | None = None
        self._questions: Questions[list[Figure]] = Questions(_FIGURES_WAIT_S)
        loop = asyncio.get_running_loop()
        self._first_ready: asyncio.Future[None] = loop.create_future()
        self._given_up: asyncio.Future[DeepInferError] = loop.create_future()
        self._supervisor = asyncio.ensure_future(self._supervise())

    @property
    def state(self) -> EngineState:
        """What it can do now; ``dead`` also while it waits to be started again."""
        return "draining" if self._is_draining and self._state != "dead" else self._state

    @property
    def facts(self) -> EngineFacts:
        """Of the engine that was loaded last; see ``AsyncEngine``."""
        if self._facts is None:
            raise EngineUnavailable("the engine is being loaded", hint="ask again later")
        return self._facts

    @property
    def in_work(self) -> int:
        """Requests that the engine runs or queues, those included that it was told to end."""
        return len(self._requests)

    @property
    def process_id(self) -> int | None:
        """Of the engine's process; None if there is none."""
        return None if self._child is None else self._child.process_id

    def progress(self) -> dict[str, Any]:
        """How far its loading is, or how the last one went, as data."""
        return self.report.to_json()

    @property
    def was_ready(self) -> bool:
        """Whether it was ever loaded."""
        return self._facts is not None

    async def ready(self) -> None:
        """Wait until it was loaded for the first time.

        Raises:
            DeepInferError: why it was not, as ``LLM`` raises it.
        """
        await asyncio.shield(self._first_ready)

    async def given_up(self) -> DeepInferError:
        """Wait until it is dead and will not be started again.

        Returns:
            Why.
        """
        return await asyncio.shield(self._given_up)

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Item]:
        """Answer a request; see ``AsyncEngine``."""
        live = self._submit(request)
        try:
            while True:
                if (item := live.take()) is not None:
                    yield item
                elif live.is_over:
                    return
                else:
                    await live.changed()
        finally:
            if self._requests.leave(live):
                self._send(Abort(live.number, "client"))

    def abort(self, request_id: str) -> bool:
        """End a request soon; see ``AsyncEngine``."""
        live = self._requests.named(request_id)
        if live is not None:
            self._send(Abort(live.number, "operator"))
        return live is not None

    async def metrics_text(self) -> str:
        """Its metrics; see ``AsyncEngine``.

        Raises:
            EngineError: it does not answer.
        """
        if self._state != "ready":
            return ""
        found = await self._questions.ask(lambda number: self._send(FiguresAsked(number)))
        return "" if found is None else await text_of(series_of(found))

    async def drain(self, seconds: float) -> bool:
        """Take no more requests; see ``AsyncEngine``. Those that did not end get an error."""
        self._is_draining = True
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._requests.emptied()
        except TimeoutError:
            for live in self._requests.all():
                self._send(Abort(live.number, "shutdown"))
                live.fail(cut_off())
            return False
        return True

    async def close(self) -> None:
        """End everything; see ``AsyncEngine``."""
        self._is_draining = True
        if not self._closing.is_set():
            self._closing.set()
            self._send(Stop("the service was stopped"))
        done, _ = await asyncio.wait({self._supervisor}, timeout=_STOP_WAIT_S)
        if not done and self._child is not None:
            self._child.kill()
        await asyncio.wait({self._supervisor})

    def _submit(self, request: GenerateRequest) -> LiveRequest:
        if self.state != "ready":
            raise not_ready(self.state)
        live = self._requests.new(request)
        self._send(submit_message(live.number, request))
        self._requests.add(live)
        return live

    def _send(self, message: ToEngine) -> None:
        if self._child is not None:
            self._child.send(message)

    async def _supervise(self) -> None:
        while True:
            failure = await self._run_child()
            ready_s = 0.0 if self._ready_since_s is None else _now_s() - self._ready_since_s
            self._ready_since_s, self._state = None, "dead"
            self._tell_all(failure)
            if self._closing.is_set() or self._facts is None or self._is_draining:
                break
            wait_s = self._restarts.wait_s(ready_s)
            if wait_s is None:
                break
            get_logger(__name__).error("engine.died", reason=str(failure), restart_in_s=wait_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), wait_s)
                break
            self.report = LoadReport(self.report.attempt + 1, str(failure))
            self._state = "loading"
        self.report.last_failure = "" if self._closing.is_set() else str(failure)
        if not self._first_ready.done():
            self._first_ready.set_exception(failure)
            self._first_ready.exception()  # nobody need wait for it
        self._given_up.set_result(failure)

    async def _run_child(self) -> DeepInferError:
        """Start an engine and wait for its end; why it ended."""
        self._load_failure = None
        child = ChildProcess(self._command, FRONT_LANGUAGE, self._heard)
        try:
            await child.start()
        except OSError as error:
            return EngineError(f"the engine's process cannot be started: {error}")
        self._child = child
        child.send(Start(settings=self._loaded.to_json(), path=list(sys.path)))
        if self._closing.is_set():
            child.kill()
        try:
            how = await child.ended()
        finally:
            self._child = None
            for event in self.report.abandoned():
                self._note(event)
        if self._load_failure is not None:
            return self._load_failure
        return EngineError(f"the engine's process died: {how}", hint="its log may show why")

    def _heard(self, message: FromEngine) -> None:
        if isinstance(message, StepDone):
            self._requests.heard(message)
        elif isinstance(message, Figures):
            self._questions.answered(message.number, message.figures)
        elif isinstance(message, Loading):
            self._note(message.started or message.advanced or message.finished)
        elif isinstance(message, Ready):
            self._facts, self._state = message.facts, "ready"
            self._ready_since_s = _now_s()
            if not self._first_ready.done():
                self._first_ready.set_result(None)
        elif isinstance(message, LoadFailed):
            self._load_failure = error_of(message.fault)

    def _note(self, event: ProgressEvent | None) -> None:
        if event is not None:
            self.report(event)
            if self._progress is not None and self._facts is None:
                self._progress(event)

    def _tell_all(self, failure: DeepInferError) -> None:
        """Nothing more comes from this engine."""
        why = "the service was stopped" if self._closing.is_set() else failure.message
        self._requests.fail_all(lambda: lost(why))
        self._questions.end()


def _now_s() -> float:
    return time.monotonic()
