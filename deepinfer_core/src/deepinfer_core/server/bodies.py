"""Which bodies are read at once, which in a thread, and which not to their end?

Those of all calls in work are held in memory, so large ones have a limit together. Small ones have
none: as many as connections may be open do no harm.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from deepinfer_core.config.server import ServerSettings
from deepinfer_core.errors import EngineUnavailable
from deepinfer_core.server.body import parse_object, read_body
from deepinfer_core.server.exchange import Exchange
from deepinfer_core.server.refusals import Refused
from deepinfer_core.server.threads import IS_LARGE, LARGE_BODY_BYTES, Threads

__all__ = ["Bodies"]

_SMALL_BODY_BYTES = 64 << 10
"""Parsed at once: a larger one takes longer than the way to a thread and back."""


class Bodies:
    """Reads the bodies of a service.

    Args:
        settings: their limits.
        threads: parse large ones.
    """

    def __init__(self, settings: ServerSettings, threads: Threads) -> None:
        self._settings = settings
        self._threads = threads
        self._reading: set[asyncio.Task[Any]] = set()
        self._held: dict[asyncio.Task[Any], int] = {}
        self._held_bytes = 0
        self._is_stopping = False

    async def read(self, exchange: Exchange) -> dict[str, Any]:
        """The JSON object of a call's body.

        Raises:
            RequestError: it is none.
            Refused: it is too large or too slow, or all of them are too large together.
            EngineUnavailable: it was not there yet when the service was stopped.
            ClientGone: the client went away.
        """
        body = await self._whole(exchange)
        exchange.has_unread_body = False
        IS_LARGE.set(len(body) >= LARGE_BODY_BYTES)
        if len(body) < _SMALL_BODY_BYTES:
            return parse_object(body)
        parsed: dict[str, Any] = await self._threads.run(parse_object, body)
        return parsed

    def let_go(self) -> None:
        """The call that this task answers has ended, and holds its body no longer."""
        task = asyncio.current_task()
        assert task is not None
        held_bytes = self._held.pop(task, 0)
        if held_bytes:
            self._held_bytes -= held_bytes
            self._threads.give_back_soon()

    def refuse_unread(self) -> None:
        """Refuse calls whose body is not there yet."""
        self._is_stopping = True
        for task in tuple(self._reading):
            task.cancel()

    async def _whole(self, exchange: Exchange) -> bytes:
        task = asyncio.current_task()
        assert task is not None
        self._reading.add(task)
        try:
            return await read_body(
                exchange.receive,
                exchange.headers,
                max_bytes=self._settings.max_body_bytes,
                timeout_s=self._settings.body_timeout_s,
                grown=partial(self._hold, task),
            )
        except asyncio.CancelledError:
            if not self._is_stopping:
                raise
            task.uncancel()
            raise EngineUnavailable("the service is shutting down") from None
        finally:
            self._reading.discard(task)

    def _hold(self, task: asyncio.Task[Any], size_bytes: int) -> None:
        if size_bytes < LARGE_BODY_BYTES:
            return
        more = size_bytes - self._held.get(task, 0)
        if self._held_bytes + more > self._settings.max_bodies_bytes:
            raise Refused(
                429,
                "too_many_large_bodies",
                f"calls in work hold {self._held_bytes} bytes of large bodies, of at most "
                f"{self._settings.max_bodies_bytes}",
                hint="ask again later, or send less",
            )
        self._held[task] = size_bytes
        self._held_bytes += more
