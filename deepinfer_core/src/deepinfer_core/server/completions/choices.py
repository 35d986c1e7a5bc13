"""How do several engine requests answer one call?

The engine gives one answer to one prompt. A call may ask for more: its requests run side by side, a
bounded number at a time, and what they give comes out as one stream. What is ready together comes
together, so that it becomes one write. When the stream is closed, all of them end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import cast

from deepinfer_core.interfaces.async_engine import AsyncEngine, GenerateRequest, Item

__all__ = ["Came", "run_choices"]

Came = tuple[int, Item]
"""Place of a request among those of its call, and what came of it."""

_SIDE_BY_SIDE = 32
"""Requests of one call in the engine at once: one call does not fill its queue."""

_WAITING = 256
"""Items that wait to be taken; the engine merges what comes beyond."""

_Fed = tuple[int, Item | Exception | None]
"""None: the request is over."""


async def run_choices(
    engine: AsyncEngine, requests: Sequence[GenerateRequest]
) -> AsyncGenerator[list[Came], None]:
    """Run requests to their ends.

    Args:
        engine: answers them.
        requests: of one call, in the order of its choices.

    Yields:
        What came since the last time, at least one item; the items of one request in order.

    Raises:
        DeepInferError: a request failed; the others are ended.
    """
    if len(requests) == 1:
        async with aclosing(_items(engine, requests[0])) as items:
            async for only in items:
                yield [(0, only)]
        return
    fed: asyncio.Queue[_Fed] = asyncio.Queue(_WAITING)
    free = asyncio.Semaphore(_SIDE_BY_SIDE)
    tasks = [
        asyncio.create_task(_feed(engine, request, place, fed, free))
        for place, request in enumerate(requests)
    ]
    try:
        left = len(tasks)
        while left:
            came: list[Came] = []
            for place, item in await _ready(fed):
                if isinstance(item, Exception):
                    raise item
                if item is None:
                    left -= 1
                else:
                    came.append((place, item))
            if came:
                yield came
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _ready(fed: asyncio.Queue[_Fed]) -> list[_Fed]:
    came = [await fed.get()]
    while not fed.empty():
        came.append(fed.get_nowait())
    return came


async def _feed(
    engine: AsyncEngine,
    request: GenerateRequest,
    place: int,
    fed: asyncio.Queue[_Fed],
    free: asyncio.Semaphore,
) -> None:
    try:
        async with free, aclosing(_items(engine, request)) as items:
            async for item in items:
                await fed.put((place, item))
        await fed.put((place, None))
    except Exception as error:  # noqa: BLE001  # whoever reads the queue raises it
        await fed.put((place, error))


def _items(engine: AsyncEngine, request: GenerateRequest) -> AsyncGenerator[Item, None]:
    """What every engine gives is a generator: closing it ends the request."""
    items: AsyncIterator[Item] = engine.generate(request)
    return cast("AsyncGenerator[Item, None]", items)
