"""How is one request answered, whole or as a stream, whatever goes wrong on the way?"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    MutableMapping,
)
from typing import Any

from deepinfer_core.errors import DeepInferError
from deepinfer_core.interfaces.protocol import (
    Dialect,
    EventAnswer,
    HttpCall,
    JsonAnswer,
)
from deepinfer_core.server.body import ClientGone, Receive
from deepinfer_core.server.call_record import CallRecord
from deepinfer_core.server.direct_write import ConnectionWrite
from deepinfer_core.server.refusals import Refused, ended_by, retry_after_s, status_of

__all__ = ["Exchange", "Send", "request_id_of"]

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
"""Sends a message to a client, as ASGI says."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_UNREAD_BODY_S = 2.0
"""How long a refused body is read and thrown away, so that its sender gets to read the refusal."""

_UNREAD_PIECE_S = 0.5
"""How long the next piece of it is waited for: whoever sends none does not miss the refusal."""

_WRITES_IN_A_ROW = 32

_SECRETS = frozenset({b"authorization", b"cookie", b"x-api-key"})
"""Headers that are the shell's business alone."""

_STREAM_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


def request_id_of(headers: Mapping[bytes, bytes]) -> str:
    """The id that a client gave a request, or a new one."""
    given = headers.get(b"x-request-id", b"").decode("latin-1")
    return given if _REQUEST_ID.fullmatch(given) else f"req-{secrets.token_hex(12)}"


class Exchange:
    """One request and its response.

    Args:
        headers: of the request, by names in lower case.
        receive: gives what the client sends.
        send: sends to the client.
        record: is told status and error.
        dialect: of errors, until a route says otherwise.
        direct: writes to the client without waiting, once the status was sent.

    Attributes:
        common: headers of every response.
        has_unread_body: whether the client may still be sending.
    """

    def __init__(
        self,
        headers: Mapping[bytes, bytes],
        receive: Receive,
        send: Send,
        record: CallRecord,
        dialect: Dialect,
        direct: ConnectionWrite | None = None,
    ) -> None:
        self.headers = headers
        self.receive = receive
        self.record = record
        self.dialect = dialect
        self.has_unread_body = False
        name = record.request_id.encode()
        self.common: list[tuple[bytes, bytes]] = [
            (b"x-request-id", name),
            (b"request-id", name),
            (b"x-content-type-options", b"nosniff"),
        ]
        self._send = send
        self._direct = direct
        self._is_whole = False

    def call(self, **given: Any) -> HttpCall:
        """What a protocol learns of the request; the fields that are not known here are given."""
        return HttpCall(
            request_id=self.record.request_id,
            key_label=self.record.key_label,
            headers={
                name.decode("latin-1"): value.decode("latin-1")
                for name, value in self.headers.items()
                if name not in _SECRETS
            },
            notes=self.record.notes,
            **given,
        )

    async def whole(self, answer: JsonAnswer) -> None:
        """Send a whole response."""
        headers = {"content-type": "application/json", **answer.headers}
        headers["content-length"] = str(len(answer.content))
        if self.has_unread_body:
            headers["connection"] = "close"
        await self._start(answer.status, headers)
        await self._body(answer.content, more=self.has_unread_body)
        if self.has_unread_body:
            await self._throw_away_body()
            await self._body(b"", more=False)

    async def empty(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Send a response without a body."""
        self.common += headers
        await self._start(status, {})
        await self._body(b"", more=False)

    async def fail(self, error: DeepInferError) -> None:
        """Say that something failed: by a status, or, in a stream, by its last event."""
        status = status_of(error)
        self.record.error = error.code
        self.record.ended_by = self.record.ended_by or ended_by(error)
        if self._is_whole:
            return
        if self.record.status:
            await self._body(self.dialect.error_event(error, status, self.record.request_id))
            await self._body(b"", more=False)
            return
        headers = dict(error.headers) if isinstance(error, Refused) else {}
        if (wait := retry_after_s(error)) is not None:
            headers["retry-after"] = str(wait)
        content = self.dialect.error_body(error, status, self.record.request_id)
        await self.whole(JsonAnswer(content=content, status=status, headers=headers))

    async def stream(self, answer: EventAnswer, keep_alive_s: float) -> None:
        """Send events as they come, each item in one write, and signs of life between them.

        The status is sent with the first event or sign of life.

        Args:
            answer: its events are closed at the end, whatever happens.
            keep_alive_s: longest silence.
        """
        events, direct = answer.events, self._direct
        pulse = _Pulse(self.send_keep_alive, keep_alive_s, direct)
        clock = asyncio.get_running_loop().time
        written = 0
        if direct is not None and answer.begin is not None:
            answer.begin(direct)
        try:
            async for data in events:
                if pulse.beat is not None:
                    await pulse.settled()
                pulse.is_held = True
                if not self.record.status:
                    await self._start(200, _STREAM_HEADERS)
                await self._body(data)
                pulse.is_held = False
                pulse.last_s = clock()
                written += 1
                if not written % _WRITES_IN_A_ROW:
                    # Neither events that are there already nor a client that is gone make a write
                    # wait; others get their turn all the same.
                    await asyncio.sleep(0)
        finally:
            await pulse.stop()
            close = getattr(events, "aclose", None)
            if close is not None:
                await close()
        if not self.record.status:
            await self._start(200, _STREAM_HEADERS)
        await self._body(b"", more=False)

    async def send_keep_alive(self) -> None:
        """Send what means nothing within a stream."""
        if not self.record.status:
            await self._start(200, _STREAM_HEADERS)
        await self._body(self.dialect.keep_alive)

    async def passed_on(self, message: MutableMapping[str, Any]) -> None:
        """Send a message of somebody else's response, with the headers of every response."""
        if message["type"] == "http.response.start":
            self.record.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *self.common]
        self._is_whole = not message.get("more_body", message["type"] == "http.response.start")
        await self._send(message)

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        named = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        await self._send(
            {"type": "http.response.start", "status": status, "headers": [*named, *self.common]}
        )
        self.record.status = status
        if self._direct is not None:
            self._direct.settle()

    async def _body(self, data: bytes, *, more: bool = True) -> None:
        self._is_whole = not more
        if self._direct is not None:
            self._direct.flush()
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def _throw_away_body(self) -> None:
        try:
            async with asyncio.timeout(_UNREAD_BODY_S):
                while True:
                    async with asyncio.timeout(_UNREAD_PIECE_S):
                        message = await self.receive()
                    if message["type"] == "http.disconnect" or not message.get("more_body"):
                        return
        except (TimeoutError, ClientGone):
            return


class _Pulse:
    """Gives signs of life while a stream has nothing to say.

    Looks at the clock once in an interval, so that an event costs no timer.

    Args:
        send: a sign of life.
        interval_s: longest silence.
        direct: another way on which something may have been sent.

    Attributes:
        is_held: no sign is to be given, something is being sent.
        last_s: when the last thing was sent, on the clock of the loop.
        beat: a sign that is being sent; whoever sends something else waits until it is.
    """

    def __init__(
        self,
        send: Callable[[], Coroutine[Any, Any, None]],
        interval_s: float,
        direct: ConnectionWrite | None,
    ) -> None:
        self._send = send
        self._direct = direct
        self._interval_s = interval_s
        self._loop = asyncio.get_running_loop()
        self.is_held = False
        self.last_s = self._loop.time()
        self.beat: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(interval_s, self._look)

    async def settled(self) -> None:
        """Wait for the sign that is being sent."""
        if self.beat is not None:
            await asyncio.wait((self.beat,))
            self.beat = None

    async def stop(self) -> None:
        """Give no sign any more."""
        self.is_held = True
        self._timer.cancel()
        await self.settled()

    def _look(self) -> None:
        now = self._loop.time()
        direct_s = 0.0 if self._direct is None else self._direct.last_s
        due = max(self.last_s, direct_s) + self._interval_s
        if now >= due:
            due = now + self._interval_s
            if not self.is_held and (self.beat is None or self.beat.done()):
                self.last_s = now
                self.beat = self._loop.create_task(self._send())
        self._timer = self._loop.call_at(due, self._look)
