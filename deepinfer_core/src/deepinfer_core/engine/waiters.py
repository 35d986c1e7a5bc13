"""How does one thread wake tasks of any number of event loops?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Waiter", "wake"]


class Waiter(NamedTuple):
    """A task that sleeps.

    Attributes:
        loop: whose task it is.
        future: what it awaits; only tasks of the loop touch it.
    """

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]

    @classmethod
    def here(cls) -> Waiter:
        """For the running loop; the caller awaits ``future``."""
        loop = asyncio.get_running_loop()
        return cls(loop, loop.create_future())


def wake(waiters: Iterable[Waiter]) -> None:
    """Wake them, from any thread, with one call to each loop however many there are.

    One whose loop was closed is left alone: nobody is there any more.
    """
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for waiter in waiters:
        by_loop.setdefault(waiter.loop, []).append(waiter.future)
    for loop, futures in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, futures)
        except RuntimeError:
            if not loop.is_closed():
                raise


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():  # it may have been cancelled
            future.set_result(None)
