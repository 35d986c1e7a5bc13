"""Where does work run that would hold up the event loop?"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

__all__ = ["Threads"]


class Threads:
    """A few threads for parsing and tokenising; most of that releases the interpreter's lock.

    Args:
        count: of threads.
    """

    def __init__(self, count: int = 4) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="deepinfer-server")

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Awaitable[Any]:
        """Call a function in a thread; whoever is cancelled does not wait for it."""
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._pool, partial(function, *args, **kwargs))

    def close(self) -> None:
        """Begin nothing more; what runs, ends."""
        self._pool.shutdown(wait=False, cancel_futures=True)
