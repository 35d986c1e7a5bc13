"""How do requests of many callers share one engine?

The engine takes requests in the order of their arrival, so whoever sends a thousand at once would
keep everybody else waiting for all of them. Only about as many as run are therefore handed on at a
time; ``turns`` says whose the next one is. So a caller waits for the end of one request, however
many others have sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import replace
from typing import cast

from deepinfer_core.errors import DeepInferError, EngineBusy, EngineUnavailable, RequestError
from deepinfer_core.interfaces.async_engine import (
    AsyncEngine,
    EngineFacts,
    EngineState,
    Finished,
    GenerateRequest,
    Item,
)
from deepinfer_core.server.callers import CALLER
from deepinfer_core.server.turns import Ticket, Turns
from deepinfer_core.server.unavailable import NotInTime, Stopping

__all__ = ["FairEngine"]


class _Waiting(Ticket):
    """One request.

    Attributes:
        request: as it was asked.
        turn: done when the request is handed on, or fails while it waits.
        is_begun: whether the engine was asked.
        is_ended: whether somebody ended it before that.
    """

    def __init__(self, request: GenerateRequest) -> None:
        super().__init__(CALLER.get(), request.cache_salt)
        self.request = request
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_begun = False
        self.is_ended = False

    def wake(self, error: DeepInferError | None = None) -> None:
        """Let it go on, or fail; nothing if it was cancelled meanwhile."""
        if self.turn.done():
            return
        if error is None:
            self.turn.set_result(None)
        else:
            self.turn.set_exception(error)


class FairEngine(AsyncEngine):
    """An engine that serves callers in turn; ``CALLER`` says who asks.

    Args:
        engine: does the work.
        places: requests that it is handed at once; a few more than it runs keep it busy.
        max_in_work: requests that it has or that wait for it; more are refused.
        queue_timeout_s: a request that has not been started by then is refused.
        retention_of: class of traffic of a caller's requests that name none; None: the usual one.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        places: int,
        max_in_work: int,
        queue_timeout_s: float,
        retention_of: Callable[[str], str | None] = lambda caller: None,
    ) -> None:
        self._engine = engine
        self._max_in_work = max_in_work
        self._queue_timeout_s = queue_timeout_s
        self._retention_of = retention_of
        self._is_draining = False
        self._turns: Turns[_Waiting] = Turns(places)
        self._requests: dict[str, _Waiting] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def state(self) -> EngineState:
        """See ``AsyncEngine``; ``draining`` as soon as nothing new is taken here."""
        state = self._engine.state
        return "draining" if self._is_draining and state == "ready" else state

    @property
    def facts(self) -> EngineFacts:
        """See ``AsyncEngine``."""
        return self._engine.facts

    @property
    def in_work(self) -> int:
        """Requests that the engine has or that wait for it."""
        return len(self._requests)

    @property
    def waiting(self) -> int:
        """Requests that wait for the engine to have room."""
        return len(self._turns.waiting)

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Item]:
        """Answer a request when its turn has come; see ``AsyncEngine``.

        Raises:
            EngineUnavailable: also if it was not started in time.
        """
        self._check(request)
        usual = self._retention_of(CALLER.get())
        if request.retention is None and usual is not None:
            request = replace(request, retention=usual)
        waiting = _Waiting(request)
        self._requests[request.request_id] = waiting
        self._idle.clear()
        self._turns.join(waiting)
        self._hand_on()
        items = cast("AsyncGenerator[Item]", self._engine.generate(request))
        try:
            item = await self._first(waiting, items)
            yield item
            if not isinstance(item, Finished):
                async for item in items:
                    yield item
        finally:
            try:
                await items.aclose()
            finally:
                self._leave(waiting)

    def abort(self, request_id: str) -> bool:
        """End a request of the same caller; see ``AsyncEngine``."""
        found = self._requests.get(request_id)
        if found is None or found.caller != CALLER.get():
            return False
        if found.is_begun:
            return self._engine.abort(request_id)
        found.is_ended = True
        found.wake()
        return True

    async def metrics_text(self) -> str:
        """See ``AsyncEngine``."""
        return await self._engine.metrics_text()

    async def drain(self, seconds: float) -> bool:
        """Let what waits and runs end; see ``AsyncEngine``."""
        self._is_draining = True
        end = asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout_at(end):
                await self._idle.wait()
        except TimeoutError:
            self._refuse_waiting()
        left = max(0.0, end - asyncio.get_running_loop().time())
        return await self._engine.drain(left)

    async def close(self) -> None:
        """Refuse what waits, and close the engine."""
        self._is_draining = True
        self._refuse_waiting()
        await self._engine.close()

    def _check(self, request: GenerateRequest) -> None:
        if self.state != "ready":
            raise EngineUnavailable(f"the engine is {self.state}", hint="ask again later")
        if len(self._requests) >= self._max_in_work:
            raise EngineBusy(
                f"{self._max_in_work} requests are in work, as many as may be",
                hint="ask again later",
            )
        if request.request_id in self._requests:
            raise RequestError(f"a request {request.request_id} is in work", hint="name it anew")

    async def _first(self, waiting: _Waiting, items: AsyncGenerator[Item]) -> Item:
        """What comes first of a request, after its turn has come."""
        try:
            async with asyncio.timeout(self._queue_timeout_s) as limit:
                await waiting.turn
                if not waiting.is_ended:
                    waiting.is_begun = True
                    return await anext(items)
        except TimeoutError:
            if not limit.expired():
                raise
            raise NotInTime(
                f"the request was not started within {self._queue_timeout_s:g} s",
                hint="ask again later",
            ) from None
        tokens = len(waiting.request.prompt_token_ids)
        return Finished(
            reason="abort",
            aborted_by="operator",
            prompt_tokens=tokens,
            cached_tokens=0,
            completion_tokens=0,
        )

    def _hand_on(self) -> None:
        """Give free places to those whose turn it is."""
        while (ticket := self._turns.next()) is not None:
            ticket.wake()

    def _leave(self, waiting: _Waiting) -> None:
        del self._requests[waiting.request.request_id]
        self._turns.leave(waiting)
        self._hand_on()
        if not self._requests:
            self._idle.set()

    def _refuse_waiting(self) -> None:
        for ticket in self._turns.waiting:
            ticket.wake(Stopping("the server stops"))
