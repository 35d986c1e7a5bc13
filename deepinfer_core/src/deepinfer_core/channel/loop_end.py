"""How does a process that runs an event loop speak and listen?

Everything happens on the loop, in callbacks that must not wait.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from deepinfer_core.channel.frames import ChannelBroken, FrameReader
from deepinfer_core.channel.language import Language

__all__ = ["LoopEnd"]

Said = TypeVar("Said")
Heard = TypeVar("Heard")


class LoopEnd(asyncio.Protocol, Generic[Said, Heard]):
    """One end of a pair of connected sockets; ``open`` makes it.

    Args:
        language: of this side.
        heard: told each message.
        closed: told once that nothing more comes; with the reason if the other side did not just
            close its end.
    """

    def __init__(
        self,
        language: Language[Said, Heard],
        heard: Callable[[Heard], None],
        closed: Callable[[ChannelBroken | None], None],
    ) -> None:
        self._language = language
        self._heard = heard
        self._closed = closed
        self._frames = FrameReader(language.max_bytes)
        self._is_greeted = False
        self._reason: ChannelBroken | None = None
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(
        cls,
        connection: socket.socket,
        language: Language[Said, Heard],
        heard: Callable[[Heard], None],
        closed: Callable[[ChannelBroken | None], None],
    ) -> LoopEnd[Said, Heard]:
        """Greet, and listen from now on.

        Args:
            connection: one of a pair; belongs to the end from now on.
            language: see the class.
            heard: see the class.
            closed: see the class.
        """
        loop = asyncio.get_running_loop()
        connection.setblocking(False)
        end: LoopEnd[Said, Heard] = cls(language, heard, closed)
        await loop.create_unix_connection(lambda: end, sock=connection)
        return end

    def send(self, message: Said) -> None:
        """Send a message; what the socket does not take is kept and sent behind it.

        Nothing happens if the other side has gone; ``closed`` tells of that.

        Raises:
            MessageTooLarge: it is larger than the other side takes.
            TypeError: it holds what cannot be sent.
        """
        self._write(self._language.pack(message))

    def close(self) -> None:
        """Close the connection, when what was sent has left. May be called again."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet."""
        # Transports of other loops are no subclasses of asyncio's, and do the same.
        self._transport = cast("asyncio.Transport", transport)
        self._write(self._language.greeting())

    def data_received(self, data: bytes) -> None:
        """Hand on what is whole."""
        try:
            for frame in self._frames.feed(data):
                if self._is_greeted:
                    self._heard(self._language.unpack(frame))
                else:
                    self._language.check_greeting(frame)
                    self._is_greeted = True
        except ChannelBroken as error:
            self._reason = error
            if self._transport is not None:
                self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever listens."""
        reason = self._reason
        if reason is None and not self._frames.is_between:
            reason = ChannelBroken("the other side went away within a message")
        self._transport = None
        self._closed(reason)

    def _write(self, frame: bytearray) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame)
