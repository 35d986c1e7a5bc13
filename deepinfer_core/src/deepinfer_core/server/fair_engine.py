"""Whose request is next when there are more than the engine runs?

The engine takes requests in the order of their arrival, so whoever sends a thousand at once would
keep everybody else waiting for all of them. Only about as many as run are therefore handed on;
whenever one ends, the next is one of the caller that has the fewest in the engine, among those of
equal callers one of the user with the fewest, then the oldest. So a caller waits for the end of one
request, however many others have sent.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
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

__all__ = ["FairEngine"]


@dataclass(slots=True, eq=False)
class _Ticket:
    """One request, in the order of arrival.

    Attributes:
        turn: true when the request may be handed on, false if it was ended before.
        is_handed_on: whether it has one of the engine's places.
        is_begun: whether the engine was asked.
        is_ended: whether somebody ended it before that.
    """

    request: GenerateRequest
    caller: str
    turn: asyncio.Future[bool] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    is_handed_on: bool = False
    is_begun: bool = False
    is_ended: bool = False

    @property
    def user(self) -> tuple[str, str]:
        return self.caller, self.request.cache_salt


class FairEngine(AsyncEngine):
    """An engine that serves callers in turn; ``CALLER`` says who asks.

    Args:
        engine: does the work.
        places: requests that it is handed at once; a few more than it runs keep it busy.
        max_in_work: requests that it has or that wait for it; more are refused.
        queue_timeout_s: a request that has not been started by then is refused.
    """

    def __init__(
        self, engine: AsyncEngine, *, places: int, max_in_work: int, queue_timeout_s: float
    ) -> None:
        self._engine = engine
        self._places = places
        self._max_in_work = max_in_work
        self._queue_timeout_s = queue_timeout_s
        self._is_draining = False
        self._tickets: dict[str, _Ticket] = {}
        self._waiting: dict[_Ticket, None] = {}
        self._handed_on = 0
        self._of_caller: Counter[str] = Counter()
        self._of_user: Counter[tuple[str, str]] = Counter()
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
        return len(self._tickets)

    @property
    def waiting(self) -> int:
        """Requests that wait for the engine to have room."""
        return len(self._waiting)

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Item]:
        """Answer a request when its turn has come; see ``AsyncEngine``.

        Raises:
            EngineUnavailable: also if it was not started in time.
        """
        self._check(request)
        ticket = _Ticket(request, CALLER.get())
        self._tickets[request.request_id] = ticket
        self._waiting[ticket] = None
        self._idle.clear()
        self._hand_on()
        items = cast("AsyncGenerator[Item]", self._engine.generate(request))
        try:
            item = await self._first(ticket, items)
            yield item
            if not isinstance(item, Finished):
                async for item in items:
                    yield item
        finally:
            try:
                await items.aclose()
            finally:
                self._leave(ticket)

    def abort(self, request_id: str) -> bool:
        """End a request of the same caller; see ``AsyncEngine``."""
        ticket = self._tickets.get(request_id)
        if ticket is None or ticket.caller != CALLER.get():
            return False
        if ticket.is_begun:
            return self._engine.abort(request_id)
        ticket.is_ended = True
        self._waiting.pop(ticket, None)
        if not ticket.turn.done():
            ticket.turn.set_result(False)
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
            self._refuse_waiting(EngineUnavailable("the server stops"))
        left = max(0.0, end - asyncio.get_running_loop().time())
        return await self._engine.drain(left)

    async def close(self) -> None:
        """Refuse what waits, and close the engine."""
        self._is_draining = True
        self._refuse_waiting(EngineUnavailable("the server stops"))
        await self._engine.close()

    def _check(self, request: GenerateRequest) -> None:
        if self.state != "ready":
            raise EngineUnavailable(f"the engine is {self.state}", hint="ask again later")
        if len(self._tickets) >= self._max_in_work:
            raise EngineBusy(
                f"{self._max_in_work} requests are in work, as many as may be",
                hint="ask again later",
            )
        if request.request_id in self._tickets:
            raise RequestError(f"a request {request.request_id} is in work", hint="name it anew")

    async def _first(self, ticket: _Ticket, items: AsyncGenerator[Item]) -> Item:
        """What comes first of a request, after its turn has come."""
        try:
            async with asyncio.timeout(self._queue_timeout_s) as limit:
                if await ticket.turn and not ticket.is_ended:
                    ticket.is_begun = True
                    return await anext(items)
        except TimeoutError:
            if not limit.expired():
                raise
            raise EngineUnavailable(
                f"the request was not started within {self._queue_timeout_s:g} s",
                hint="ask again later",
            ) from None
        tokens = len(ticket.request.prompt_token_ids)
        return Finished(reason="abort", prompt_tokens=tokens, cached_tokens=0, completion_tokens=0)

    def _hand_on(self) -> None:
        """Give free places to those whose turn it is."""
        while self._waiting and self._handed_on < self._places:
            # The first of equal ones is the oldest.
            ticket = min(self._waiting, key=self._share)
            del self._waiting[ticket]
            if ticket.turn.done():  # whoever waited was cancelled just now
                continue
            ticket.is_handed_on = True
            self._handed_on += 1
            self._of_caller[ticket.caller] += 1
            self._of_user[ticket.user] += 1
            ticket.turn.set_result(True)

    def _share(self, ticket: _Ticket) -> tuple[int, int]:
        """What its caller and its user have in the engine."""
        return self._of_caller[ticket.caller], self._of_user[ticket.user]

    def _leave(self, ticket: _Ticket) -> None:
        del self._tickets[ticket.request.request_id]
        self._waiting.pop(ticket, None)
        if ticket.is_handed_on:
            self._handed_on -= 1
            self._of_caller -= Counter([ticket.caller])
            self._of_user -= Counter([ticket.user])
            self._hand_on()
        if not self._tickets:
            self._idle.set()

    def _refuse_waiting(self, error: DeepInferError) -> None:
        for ticket in self._waiting:
            if not ticket.turn.done():
                ticket.turn.set_exception(error)
        self._waiting.clear()
