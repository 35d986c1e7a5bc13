"""How does a process that works in threads speak and listen?

Whoever sends never waits: what the socket does not take at once, a thread of the end sends behind
it. One thread listens.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from threading import Condition, Thread
from typing import Generic, TypeVar

from deepinfer_core.channel.frames import ChannelBroken, FrameReader
from deepinfer_core.channel.language import Language

__all__ = ["ThreadEnd"]

Said = TypeVar("Said")
Heard = TypeVar("Heard")

_PIECE_BYTES = 1 << 18
_AT_ONCE = socket.MSG_DONTWAIT | getattr(socket, "MSG_NOSIGNAL", 0)


class ThreadEnd(Generic[Said, Heard]):
    """One end of a pair of connected sockets. Greets when it is made.

    Args:
        connection: one of a pair; belongs to the end from now on.
        language: of this side.
        max_backlog_bytes: that may wait to be sent; above it the other side is taken for dead.
    """

    def __init__(
        self,
        connection: socket.socket,
        language: Language[Said, Heard],
        *,
        max_backlog_bytes: int = 1 << 30,
    ) -> None:
        connection.setblocking(True)
        self._connection = connection
        self._language = language
        self._max_backlog_bytes = max_backlog_bytes
        self._changed = Condition()
        self._backlog: list[memoryview] = []
        self._backlog_bytes = 0
        self._is_closed = False
        self._writer = Thread(target=self._write, name="deepinfer-channel", daemon=True)
        self._writer.start()
        self._put(language.greeting())

    @property
    def backlog_bytes(self) -> int:
        """What waits to be sent."""
        return self._backlog_bytes

    def send(self, message: Said) -> None:
        """Send a message, from any thread, without waiting for anybody.

        Nothing happens if the other side has gone; whoever listens learns of it.

        Raises:
            MessageTooLarge: it is larger than the other side takes.
        """
        self._put(self._language.pack(message))

    def messages(self) -> Iterator[Heard]:
        """What the other side says, until it closes its end or this one is closed.

        Raises:
            ChannelBroken: it said what it may not say, or went away within a message.
        """
        frames, is_greeted = FrameReader(self._language.max_bytes), False
        while piece := self._read():
            for frame in frames.feed(piece):
                if is_greeted:
                    yield self._language.unpack(frame)
                else:
                    self._language.check_greeting(frame)
                    is_greeted = True
        if not (frames.is_between or self._is_closed):
            raise ChannelBroken("the other side went away within a message")

    def close(self, *, wait_s: float = 0.0) -> None:
        """Close the connection. May be called again, from any thread.

        Args:
            wait_s: how long to wait for the other side to take what is in the backlog.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or not self._backlog_bytes, wait_s)
            self._is_closed = True
            self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._writer.join()
        self._connection.close()

    def _put(self, frame: bytearray) -> None:
        with self._changed:
            if self._is_closed:
                return
            rest = memoryview(frame)
            if not self._backlog_bytes:
                rest = rest[self._sent_at_once(rest) :]
            if len(rest):
                self._backlog.append(rest)
                self._backlog_bytes += len(rest)
                self._changed.notify_all()
            if self._backlog_bytes > self._max_backlog_bytes:
                self._give_up()

    def _sent_at_once(self, data: memoryview) -> int:
        try:
            return self._connection.send(data, _AT_ONCE)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self._give_up()
            return len(data)

    def _give_up(self) -> None:
        """The other side has gone, or takes nothing; the lock is held."""
        self._is_closed = True
        self._backlog.clear()
        self._backlog_bytes = 0
        self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or self._backlog)
                if self._is_closed:
                    return
                frames, self._backlog = self._backlog, []
            for frame in frames:
                try:
                    self._connection.sendall(frame)
                except OSError:
                    with self._changed:
                        self._give_up()
                    return
                with self._changed:
                    # It stays above zero until all is sent, so that nobody overtakes.
                    self._backlog_bytes = max(0, self._backlog_bytes - len(frame))
                    self._changed.notify_all()

    def _read(self) -> bytes:
        try:
            return self._connection.recv(_PIECE_BYTES)
        except OSError:
            return b""
