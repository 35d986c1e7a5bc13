"""Where does work run that would hold up the event loop?

Reading a large body takes seconds, and of memory a hundred times its size. So such work has a
thread of its own: one of them at a time, behind which no call with a small body waits.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import Any

__all__ = ["IS_LARGE", "LARGE_BODY_BYTES", "Threads"]

LARGE_BODY_BYTES = 256 << 10
"""A body of this size takes some tenths of a second."""

IS_LARGE: ContextVar[bool] = ContextVar("deepinfer_is_large", default=False)
"""Whether the call that is answered has a large body; tasks that an answer starts inherit it."""

_GIVE_BACK_S = 1.0
"""How long after a large body its memory is given back, and that of others with it."""

_give_back: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""Gives freed memory back to the system; glibc keeps that of many small pieces otherwise."""


class Threads:
    """A few threads for parsing and tokenising; most of that releases the interpreter's lock.

    Args:
        count: of threads for calls with small bodies.
    """

    def __init__(self, count: int = 4) -> None:
        self._small = ThreadPoolExecutor(count, thread_name_prefix="deepinfer-server")
        self._large = ThreadPoolExecutor(1, thread_name_prefix="deepinfer-server-large")
        self._giving_back: asyncio.TimerHandle | None = None

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Awaitable[Any]:
        """Call a function in a thread; whoever is cancelled does not wait for it."""
        loop, work = asyncio.get_running_loop(), partial(function, *args, **kwargs)
        return loop.run_in_executor(self._large if IS_LARGE.get() else self._small, work)

    def give_back_soon(self) -> None:
        """Give back the memory of a large body, which is let go of now."""
        if self._giving_back is None and _give_back is not None:
            loop = asyncio.get_running_loop()
            self._giving_back = loop.call_later(_GIVE_BACK_S, self._give_back, loop)

    def close(self) -> None:
        """Begin nothing more; what runs, ends."""
        if self._giving_back is not None:
            self._giving_back.cancel()
        for pool in (self._small, self._large):
            pool.shutdown(wait=False, cancel_futures=True)

    def _give_back(self, loop: asyncio.AbstractEventLoop) -> None:
        self._giving_back = None
        assert _give_back is not None
        loop.run_in_executor(self._large, _give_back, 0)
