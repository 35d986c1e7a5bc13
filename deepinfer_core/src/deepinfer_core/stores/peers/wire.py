"""How does one message after the other go over a TCP connection, each before a deadline?

A connection on which anything went wrong, a deadline included, is not used again: what comes late
could be taken for the next answer.
"""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from typing import Any

from deepinfer_core.channel.frames import ChannelBroken, FrameReader
from deepinfer_core.channel.language import Language

__all__ = ["Wire", "host_and_port"]

_PIECE_BYTES = 1 << 18
_FIRST_BYTES = 4096
"""Of a message until the other side is trusted: nobody fills the memory without the secret."""


class Wire:
    """One end of a connection; used by one thread at a time.

    Args:
        connection: belongs to the wire from now on.
        language: of this side.
    """

    def __init__(self, connection: socket.socket, language: Language[Any, Any]) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._language = language
        self._reader = FrameReader(_FIRST_BYTES)

    def trust(self) -> None:
        """Take messages as long as the language allows, from now on.

        Raises:
            ChannelBroken: the other side has said more than it was asked.
        """
        if not self._reader.is_between:
            raise ChannelBroken("the other side speaks before it is asked")
        self._reader = FrameReader(self._language.max_bytes)

    def greet(self, deadline_s: float) -> None:
        """Greet, and hear that the other side speaks the same language.

        Raises:
            ChannelBroken: it does not.
            OSError: the connection broke, or the deadline passed.
        """
        self._put(self._language.greeting(), deadline_s)
        self._next(self._language.check_greeting, deadline_s)

    def send(self, message: object, deadline_s: float) -> None:
        """Say something.

        Raises:
            OSError: the connection broke, or the deadline passed.
        """
        self._put(self._language.pack(message), deadline_s)

    def hear(self, deadline_s: float) -> Any:
        """The next message.

        Raises:
            ChannelBroken: it cannot be understood, or the other side has closed.
            OSError: the connection broke, or the deadline passed.
        """
        return self._next(self._language.unpack, deadline_s)

    def close(self) -> None:
        """End the connection; whoever waits for it in another thread is woken."""
        with suppress(OSError):  # the other side was faster
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _put(self, frame: bytearray, deadline_s: float) -> None:
        self._connection.settimeout(_seconds(deadline_s))
        self._connection.sendall(frame)

    def _next(self, read: Any, deadline_s: float) -> Any:
        piece = b""
        while True:
            for data in self._reader.feed(piece):
                return read(data)
            self._connection.settimeout(_seconds(deadline_s))
            piece = self._connection.recv(_PIECE_BYTES)
            if not piece:
                raise ChannelBroken("the other side has closed the connection")


def host_and_port(address: str) -> tuple[str, int]:
    """The two parts of ``host:port`` or ``[host]:port``.

    Raises:
        ValueError: it is neither.
    """
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"an IPv6 address stands in brackets, found {address!r}")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"expected host:port, found {address!r}")
    return host, int(port)


def _seconds(deadline_s: float) -> float | None:
    if deadline_s == float("inf"):
        return None
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("the deadline has passed")
    return left_s
