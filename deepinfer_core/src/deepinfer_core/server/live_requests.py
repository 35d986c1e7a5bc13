"""Which requests are in work, and which of them does a message of the engine concern?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

from deepinfer_core.engine.service.faults import error_of
from deepinfer_core.engine.service.messages import StepDone
from deepinfer_core.errors import DeepInferError, EngineBusy, RequestError
from deepinfer_core.interfaces.async_engine import GenerateRequest
from deepinfer_core.server.live_request import LiveRequest

__all__ = ["LiveRequests"]


class LiveRequests:
    """Requests from when they are handed to the engine until it says that they ended.

    One whose consumer has left is counted until then, under no name.

    Args:
        places: requests at once.
    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._numbers = count(1)
        self._by_number: dict[int, LiveRequest] = {}
        self._by_id: dict[str, LiveRequest] = {}
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def __len__(self) -> int:
        """How many there are."""
        return len(self._by_number)

    def new(self, request: GenerateRequest) -> LiveRequest:
        """One that is not handed on yet; see ``add``.

        Raises:
            EngineBusy: as many as may be are in work.
            RequestError: one of that name is.
        """
        if len(self._by_number) >= self._places:
            raise EngineBusy(
                f"{len(self._by_number)} requests are in work, of {self._places} that may be",
                hint="ask again later, or raise engine.max_queued",
            )
        request_id = request.request_id
        if request_id in self._by_id:
            raise RequestError(
                f"a request with the id {request_id!r} is in work",
                hint="wait for its end, or name this one otherwise",
            )
        return LiveRequest(next(self._numbers), request_id, request.taker)

    def add(self, live: LiveRequest) -> None:
        """It was handed to the engine."""
        self._by_number[live.number] = self._by_id[live.request_id] = live
        self._is_empty.clear()

    def named(self, request_id: str) -> LiveRequest | None:
        """The one that somebody waits for under this name."""
        return self._by_id.get(request_id)

    def leave(self, live: LiveRequest) -> bool:
        """Its consumer takes nothing more; whether the engine still works on it."""
        if self._by_id.get(live.request_id) is live:
            del self._by_id[live.request_id]
        return live.number in self._by_number

    def all(self) -> list[LiveRequest]:
        """All of them, in the order in which they came."""
        return list(self._by_number.values())

    def heard(self, step: StepDone) -> None:
        """Hand on what the engine says; what concerns requests that are gone is dropped."""
        known = self._by_number
        for row in step.started:
            if (live := known.get(row.number)) is not None:
                live.start(row)
        for grown in step.grown:
            if (live := known.get(grown.number)) is not None:
                live.grow(grown)
        for ended in step.ended:
            if (live := self._pop(ended.number)) is not None:
                live.end(ended)
        for failed in step.failed:
            if (live := self._pop(failed.number)) is not None:
                live.fail(error_of(failed.fault))

    def fail_all(self, failure: Callable[[], DeepInferError]) -> None:
        """Nothing more comes for any of them.

        Args:
            failure: makes an error for each.
        """
        for live in self.all():
            self._pop(live.number)
            live.fail(failure())

    async def emptied(self) -> None:
        """Wait until there is none."""
        await self._is_empty.wait()

    def _pop(self, number: int) -> LiveRequest | None:
        live = self._by_number.pop(number, None)
        if live is not None and self._by_id.get(live.request_id) is live:
            del self._by_id[live.request_id]
        if not self._by_number:
            self._is_empty.set()
        return live
