"""How long does a request of a stand-in for an engine wait, and what ends its waiting?"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field

from deepinfer_core.errors import DeadlineExceeded
from deepinfer_core.interfaces.async_engine import AbortedBy, GenerateRequest

__all__ = ["InWork"]


@dataclass(slots=True, eq=False)
class InWork:
    """One request.

    Attributes:
        request: as it came.
        deadline: when its time is over, by the event loop's clock; None: never.
        turn: that it may begin.
        ended_by: who ended it; None: nobody.
    """

    request: GenerateRequest
    deadline: float | None
    turn: asyncio.Event = field(default_factory=asyncio.Event)
    ended_by: AbortedBy | None = None
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self, by: AbortedBy) -> None:
        """Let it wait no longer."""
        self.ended_by = by
        self._ended.set()

    async def wait(self, awaitable: Coroutine[object, object, object]) -> bool:
        """Wait for something, until the request is ended; whether it came.

        Raises:
            DeadlineExceeded: its time is over.
        """
        waits = [asyncio.create_task(awaitable), asyncio.create_task(self._ended.wait())]
        try:
            async with asyncio.timeout_at(self.deadline):
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return waits[0].done()
        except TimeoutError:
            raise DeadlineExceeded(f"{self.request.timeout_s} s are over") from None
        finally:
            for wait in waits:
                wait.cancel()
