"""How does one exchange after the other pass over one HTTP/1.1 connection?

A reader of our own, since the generator must cost less than what it measures: a general HTTP client
spends more on an event than a server does.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol, cast

import httptools

__all__ = ["Connection", "Receiver"]


class Receiver(Protocol):
    """Who is told about a response; every time is that at which its bytes came."""

    retry_after_s: float

    def begin(self, status: int, now_s: float) -> None:
        """The status line and the headers came."""

    def add(self, piece: bytes, now_s: float) -> None:
        """Bytes of the body came."""


class Connection(asyncio.Protocol):
    """One connection; at most one exchange is under way on it."""

    def __init__(self) -> None:
        self._gone = asyncio.Event()
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self._over: asyncio.Future[None] | None = None
        self._now_s = 0.0
        self._has_length = False
        self._has_started = False
        self._parser = httptools.HttpResponseParser(self)

    @property
    def is_open(self) -> bool:
        """Whether another exchange may be sent."""
        return self._transport is not None and not self._transport.is_closing()

    async def exchange(self, request: bytes, receiver: Receiver) -> None:
        """Send a request and wait for the end of its response.

        Raises:
            ConnectionError: the connection ended before the response did.
        """
        if self._transport is None or not self.is_open:
            raise ConnectionResetError("asked to send, found the connection closed")
        self._over = asyncio.get_running_loop().create_future()
        self._receiver = receiver
        self._has_length = self._has_started = False
        self._transport.write(request)
        try:
            await self._over
        finally:
            self._receiver = None

    def close(self) -> None:
        """Give it up at once, whatever is under way."""
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Until nothing of it is left."""
        await self._gone.wait()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way out."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Take the time, then read."""
        self._now_s = time.perf_counter()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(ConnectionError(f"the response is no HTTP: {error}"))
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        """A response without a length ends so; any other one is cut."""
        self._transport = None
        self._gone.set()
        is_whole = error is None and self._has_started and not self._has_length
        self._end(None if is_whole else error or ConnectionResetError("the server closed it"))

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        """Read the few headers that matter."""
        lower = name.lower()
        if lower in (b"content-length", b"transfer-encoding"):
            self._has_length = True
        elif lower == b"retry-after" and self._receiver is not None and value.isdigit():
            self._receiver.retry_after_s = float(value)

    def on_headers_complete(self) -> None:
        """Hand the status on."""
        self._has_started = True
        if self._receiver is not None:
            self._receiver.begin(self._parser.get_status_code(), self._now_s)

    def on_body(self, body: bytes) -> None:
        """Hand bytes on."""
        if self._receiver is not None:
            self._receiver.add(body, self._now_s)

    def on_message_complete(self) -> None:
        """The exchange is over; the connection stays if the server wants it to."""
        keeps = self._parser.should_keep_alive()
        self._end(None)
        if not keeps and self._transport is not None:
            self._transport.close()

    def _end(self, error: Exception | None) -> None:
        over, self._over = self._over, None
        if over is None or over.done():
            return
        if error is None:
            over.set_result(None)
        elif isinstance(error, ConnectionError):
            over.set_exception(error)
        else:
            over.set_exception(ConnectionError(str(error)))
