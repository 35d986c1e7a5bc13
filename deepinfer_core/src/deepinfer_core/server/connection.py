"""What may one connection cost, before, between and behind its calls?

uvicorn reads and writes HTTP; this adds what it has no limits for: the time and size of headers, of
silence between calls, of calls that are sent ahead, and of answers that nobody reads.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import httptools
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from deepinfer_core.config.server import ServerSettings
from deepinfer_core.server.direct_write import ConnectionWrite, Outbox
from deepinfer_core.server.old_clients import leave_unframed

__all__ = ["BAD_BODY", "CLOSING", "guarded_protocol", "uvicorn_config"]

BAD_BODY = "deepinfer.bad_body"
"""Key in the state of a call's scope: its body was no HTTP, and the connection sent 400."""

CLOSING = "deepinfer.closing"
"""Key in the state of a call's scope: a function that says whether its connection is closed."""

_MOST_AHEAD = 16
"""Calls that a client may send before the first of them is answered."""

_OF_UPGRADES = frozenset({b"upgrade", b"http2-settings"})
"""Headers of an offer to speak another protocol, of which this server knows none."""

_SIGNS_OF_LIFE = {"SO_KEEPALIVE": 1, "TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""So a peer that vanished without a word is noticed within two minutes, also while it waits."""

_LONGEST_NAP_S = 5.0
_NAPS = 4
"""How often within the shortest limit a connection is looked at."""


def uvicorn_config(app: Any, settings: ServerSettings) -> Config:
    """How uvicorn is to run an application.

    Args:
        app: an ASGI application.
        settings: of the server.
    """
    return Config(
        app,
        host=settings.host,
        port=settings.port,
        http=guarded_protocol(settings),
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        # What strangers send is no reason to fill the log.
        log_level="error",
        proxy_headers=False,
        server_header=False,
        # Silence is ended by the guard, which also counts it where uvicorn does not.
        timeout_keep_alive=int(settings.idle_timeout_s) + 1,
    )


def guarded_protocol(settings: ServerSettings) -> type[HttpToolsProtocol]:
    """A class of connections with the limits of the settings."""
    return type("GuardedProtocol", (_Guarded,), {"settings": settings, "outbox": Outbox()})


class _TooMuch(Exception):
    """A client sent more than is read; stops the parser."""


class _Parser(httptools.HttpRequestParser):
    """Says where it stopped.

    Args:
        guard: is told what it reads.
    """

    def __init__(self, guard: _Guarded) -> None:
        super().__init__(guard)
        self._guard = guard

    def feed_data(self, data: Any) -> None:
        """Read."""
        try:
            super().feed_data(data)
        except httptools.HttpParserUpgrade as stop:
            if self.get_method() == b"CONNECT":
                raise
            self._guard.stopped(bytes(data)[stop.args[0] :])


class _Guarded(HttpToolsProtocol):
    """One connection.

    Attributes:
        settings, outbox: limits, and what all connections write with; of the class.
    """

    settings: ServerSettings
    outbox: Outbox

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to watch."""
        super().connection_made(transport)
        self._is_calling = False
        self._had_call = False
        self._head_bytes = 0
        self._quiet_since: float | None = self.loop.time()
        self._blocked_since: float | None = None
        self._unread_bytes = -1
        self._watch: asyncio.TimerHandle | None = None
        self._answered: RequestResponseCycle | None = None
        self._direct: ConnectionWrite | None = None
        self._unread: bytes | None = None
        self._read_anew()
        if len(self.connections) > self.settings.max_connections:
            transport.abort()
            return
        _watch_peer(transport.get_extra_info("socket"))
        limits = self.settings
        shortest = min(limits.header_timeout_s, limits.write_timeout_s, limits.idle_timeout_s)
        self._nap_s = min(shortest / _NAPS, _LONGEST_NAP_S)
        self._watch = self.loop.call_later(self._nap_s, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        if self._watch is not None:
            self._watch.cancel()
        self.pipeline.clear()
        if self._answered is not None and not self._answered.response_complete:
            # uvicorn tells the call that was read last, which is another one if calls were sent
            # ahead.
            self._answered.disconnected = True
            self._answered.message_event.set()
        super().connection_lost(exc)
        self._settle()

    def data_received(self, data: bytes) -> None:
        """Read, as long as headers are small and calls few."""
        if not self._is_calling:
            self._head_bytes += len(data)
        unread: bytes | None = data
        while unread is not None:
            self._unread = None
            super().data_received(unread)
            unread = self._unread
        if not self._is_calling and self._head_bytes > self.settings.max_header_bytes:
            self._refuse(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        """A call begins."""
        super().on_message_begin()
        self.scope["state"][CLOSING] = self.transport.is_closing
        self._is_calling = False
        if self._quiet_since is None or self._had_call:
            self._quiet_since = self.loop.time()
        self._had_call = False
        if len(self.pipeline) >= _MOST_AHEAD:
            self.transport.abort()
            raise _TooMuch

    def on_headers_complete(self) -> None:
        """The headers of a call are there."""
        if self._offers_upgrade():
            return
        framed = [len(name) + len(value) + len(": \r\n") for name, value in self.headers]
        size = len(self.url) + sum(framed)
        if size > self.settings.max_header_bytes:
            self._refuse(b"431 Request Header Fields Too Large")
            raise _TooMuch
        self._is_calling = True
        self._head_bytes = 0
        self._quiet_since = None
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        leave_unframed(cycle)
        self._direct = ConnectionWrite(cycle, self.outbox)
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """A call was answered; silence begins, unless another one was sent ahead."""
        self._settle()
        super().on_response_complete()
        if not self.pipeline and self._quiet_since is None:
            self._quiet_since = self.loop.time()
            self._had_call = True

    def on_message_complete(self) -> None:
        """A call was read; what follows is another one."""
        if self._offers_upgrade():
            return
        super().on_message_complete()
        self._is_calling = False

    def stopped(self, unread: bytes) -> None:
        """The parser stopped behind headers that offer an upgrade; they are read without it.

        It takes what follows for the other protocol, and would take a body for the next call.

        Args:
            unread: what follows.
        """
        if self.parser is None or self.transport.is_closing():
            return
        kept = [b"%s: %s\r\n" % one for one in self.headers if one[0] not in _OF_UPGRADES]
        version = self.parser.get_http_version().encode()
        line = b"%s %s HTTP/%s\r\n" % (self.parser.get_method(), self.url, version)
        self._read_anew()
        self._unread = b"".join((line, *kept, b"\r\n", unread))

    def _read_anew(self) -> None:
        self.parser = _Parser(self)
        # As uvicorn has it: a call behind the last one of a connection is no error of that one.
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def _offers_upgrade(self) -> bool:
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def send_400_response(self, msg: str) -> None:
        """Say that what was sent is no HTTP; not within the answer to what was sent before."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if cycle is not self._answered or cycle.response_started or not cycle.more_body:
                self.transport.abort()
                return
            # It is the body of the call whose turn it is; that call is over.
            cycle.scope["state"][BAD_BODY] = True
            cycle.disconnected = True
            cycle.message_event.set()
        if not self.transport.is_closing():
            super().send_400_response(msg)

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._settle()
        self._blocked_since = self.loop.time()

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        self._settle()
        if not self.transport.is_closing():
            self._blocked_since = None

    def _settle(self) -> None:
        if self._direct is not None:
            self._direct.settle()

    def _look(self) -> None:
        now, limits = self.loop.time(), self.settings
        self._watch = self.loop.call_later(self._nap_s, self._look)
        if self._blocked_since is None and self.transport.is_closing():
            self._blocked_since = now  # what is left is not waited for without end
        if self._blocked_since is not None:
            unread = self.transport.get_write_buffer_size()
            if unread != self._unread_bytes:  # less than before: the client reads, if slowly
                self._unread_bytes, self._blocked_since = unread, now
            elif now - self._blocked_since > limits.write_timeout_s:
                self.transport.abort()
        elif self._quiet_since is not None:
            quiet_s = now - self._quiet_since
            if self._had_call and quiet_s > limits.idle_timeout_s:
                self.transport.close()
            elif not self._had_call and quiet_s > limits.header_timeout_s:
                self._refuse(b"408 Request Timeout")

    def _refuse(self, status: bytes) -> None:
        """Answer what is no call yet, and close."""
        if not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            )
            self.transport.close()


def _watch_peer(peer: Any) -> None:
    """Let the system ask whether the other end is still there."""
    for name, value in _SIGNS_OF_LIFE.items():
        option = getattr(socket, name, None)  # not every system has all of them
        if option is not None:
            level = socket.SOL_SOCKET if name.startswith("SO_") else socket.IPPROTO_TCP
            peer.setsockopt(level, option, value)
