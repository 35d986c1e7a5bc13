"""How does work end when the client that waits for it goes away?"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from deepinfer_core.server.body import ClientGone, Receive
from deepinfer_core.server.refusals import unforeseen

__all__ = ["client_gone", "until_gone"]

_LAST_WAIT_S = 5.0
"""How long work may take to end after it was cancelled."""


async def until_gone(work: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Do work as long as there is a client.

    Args:
        work: raises what it likes; a cancellation of its own becomes an error like others.
        receive: gives what the client sends, of which nothing is read any more.

    Raises:
        ClientGone: it went away, and the work was cancelled.
    """
    answer = asyncio.create_task(work)
    gone = asyncio.create_task(client_gone(receive))
    try:
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        is_cut = not answer.done()
        if is_cut:
            answer.cancel()
            await asyncio.wait((answer,), timeout=_LAST_WAIT_S)
    if is_cut:
        if answer.done() and not answer.cancelled():
            answer.exception()  # nobody is left to be told
        raise ClientGone
    if answer.cancelled():
        raise unforeseen()
    answer.result()


async def client_gone(receive: Receive) -> None:
    """Wait until a client goes away."""
    while (await receive())["type"] != "http.disconnect":
        pass
