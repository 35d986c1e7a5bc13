"""How does a piece of a stream reach its connection with the least work?

A message of ASGI costs a task that is woken, a coroutine and a dictionary, and a stream sends a
piece for every token. So a connection offers a call a second way, for pieces in the middle of a
chunked body: what uvicorn does with such a message is done by whoever has the piece. The beginning
and the end of a response, and a client that must be waited for, stay with uvicorn.

One message of the engine brings a piece for each of hundreds of connections. They are gathered, and
written one behind the other as soon as it is worked through: a client that is woken by the first
one is still awake for the next, and what several steps brought for one connection is one write.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from deepinfer_core.interfaces.protocol import DirectWrite

__all__ = ["ConnectionWrite", "Outbox", "direct_write_of"]

_KEY = "deepinfer.direct_write"

_USUAL_BYTES = 1024
_HEADS = [b"%x\r\n" % size for size in range(_USUAL_BYTES)]
"""What stands before a piece of each usual size; making it takes longer than the rest."""


class Outbox:
    """Pieces for many connections of one event loop, until its next turn."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[ConnectionWrite] = []

    def add(self, one: ConnectionWrite) -> None:
        """It has something to write."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting.append(one)

    def _flush(self) -> None:
        now_s = asyncio.get_running_loop().time()
        for one in self._waiting:
            try:
                one.flush()
            except (OSError, RuntimeError):
                # Some event loops raise when something is sent to a client that is gone. Its call
                # is told so by the connection, and the others are to get theirs.
                one.is_free = False
            one.last_s = now_s
        self._waiting.clear()


class ConnectionWrite(DirectWrite):
    """The way of one call; it can be found in the call's scope.

    Args:
        cycle: of the call, before its application is asked.
        outbox: of the event loop.
    """

    __slots__ = ("_cycle", "_data", "_outbox", "_send")

    def __init__(self, cycle: RequestResponseCycle, outbox: Outbox) -> None:
        self.is_free = False
        self.last_s = 0.0
        self._cycle = cycle
        self._send = cycle.transport.write
        self._outbox = outbox
        self._data = b""
        cycle.scope["state"][_KEY] = self

    # Whatever is done in these two is done for every token of everybody.
    def write(self, data: bytes) -> None:
        """Write soon; see ``DirectWrite``."""
        if self._data:
            self._data += data
        else:
            self._data = data
            self._outbox.add(self)

    def flush(self) -> None:
        """Write now; before something else is written to the connection."""
        data = self._data
        if data:
            self._data = b""
            size = len(data)
            head = _HEADS[size] if size < _USUAL_BYTES else b"%x\r\n" % size
            self._send(head + data + b"\r\n")

    def settle(self) -> None:
        """See whether it is free, after something has changed."""
        cycle = self._cycle
        is_open = not (cycle.flow.write_paused or cycle.disconnected or cycle.response_complete)
        self.is_free = is_open and cycle.chunked_encoding is True


def direct_write_of(scope: MutableMapping[str, object]) -> ConnectionWrite | None:
    """What the connection of a call offers; None: nothing."""
    state = scope.get("state")
    found = state.get(_KEY) if isinstance(state, dict) else None
    return found if isinstance(found, ConnectionWrite) else None
