"""How does a piece of a stream reach its connection with the least work?

A message of ASGI costs a task that is woken, a coroutine and a dictionary, and a stream sends a
piece for every token. So a connection offers a call a second way, for pieces in the middle of a
chunked body: what uvicorn does with such a message is done at once, by whoever has the piece. The
beginning and the end of a response, and a client that must be waited for, stay with uvicorn.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from deepinfer_core.interfaces.protocol import DirectWrite

__all__ = ["direct_write_of", "offer_direct_write"]

_KEY = "deepinfer.direct_write"

_USUAL_BYTES = 1024
_HEADS = [b"%x\r\n" % size for size in range(_USUAL_BYTES)]
"""What stands before a piece of each usual size; making it takes longer than the rest."""


def offer_direct_write(cycle: RequestResponseCycle) -> None:
    """Put the way into the scope of a call.

    Args:
        cycle: of the call, before its application is asked.
    """
    flow, send, clock = cycle.flow, cycle.transport.write, asyncio.get_running_loop().time
    last_s = 0.0

    # Whatever is done in these two is done for every token of everybody.
    def is_free() -> bool:
        if flow.write_paused or cycle.disconnected or cycle.response_complete:
            return False
        return cycle.chunked_encoding is True

    def write(data: bytes) -> None:
        nonlocal last_s
        size = len(data)
        head = _HEADS[size] if size < _USUAL_BYTES else b"%x\r\n" % size
        send(head + data + b"\r\n")
        last_s = clock()

    state: dict[str, Any] = cycle.scope["state"]
    state[_KEY] = DirectWrite(is_free=is_free, write=write, last_s=lambda: last_s)


def direct_write_of(scope: MutableMapping[str, Any]) -> DirectWrite | None:
    """What the connection of a call offers; None: nothing."""
    found: DirectWrite | None = scope.get("state", {}).get(_KEY)
    return found
