"""How is a process started, spoken to, and found to have ended?

It has ended when the operating system says so and everything that it said was heard. One that
breaks its channel, closes it and stays, or goes and leaves it open to others, is ended by force.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from threading import Thread
from typing import Any, Generic, TypeVar

from deepinfer_core.channel.frames import ChannelBroken
from deepinfer_core.channel.language import Language
from deepinfer_core.channel.loop_end import LoopEnd
from deepinfer_core.plugin.children import end_family

__all__ = ["ChildProcess"]

Said = TypeVar("Said")
Heard = TypeVar("Heard")

_OTHER_END_S = 6.0
"""How long the process may outlive its channel, or the channel its process."""


class ChildProcess(Generic[Said, Heard]):
    """A process that leads a session of its own, so that a terminal's signals do not reach it.

    Args:
        command: its program and arguments; the descriptor of its end is added to them.
        language: of this side.
        heard: told each message, on the event loop.
    """

    def __init__(
        self,
        command: Sequence[str],
        language: Language[Said, Heard],
        heard: Callable[[Heard], None],
    ) -> None:
        self._command = command
        self._language = language
        self._heard = heard
        self._loop = asyncio.get_running_loop()
        self._reason: ChannelBroken | None = None
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._exited: asyncio.Future[int] = self._loop.create_future()
        self._process: subprocess.Popen[bytes] | None = None
        self._end: LoopEnd[Said, Heard] | None = None

    @property
    def process_id(self) -> int | None:
        """Of the system; None before it was started."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start it.

        Raises:
            OSError: the system does not let us.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._spawn(theirs.fileno())
            except OSError:
                ours.close()
                raise
        self._end = await LoopEnd.open(ours, self._language, self._heard, self._is_closed)

    def send(self, message: Said) -> None:
        """Say something; raises like ``LoopEnd.send``. Nothing happens if it has gone."""
        if self._end is not None:
            self._end.send(message)

    def kill(self) -> None:
        """End it by force, and whatever it started."""
        if self._process is not None and not self._exited.done():
            end_family(self._process)

    async def ended(self) -> str:
        """Wait until it has ended.

        Returns:
            How, in words.
        """
        both: set[asyncio.Future[Any]] = {self._exited, self._closed}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if self._reason is None:
                await asyncio.wait(both, timeout=_OTHER_END_S)
        finally:
            self.kill()
            if self._end is not None:
                self._end.close()
        status = await self._exited
        return str(self._reason) if self._reason is not None else _in_words(status)

    def _spawn(self, descriptor: int) -> None:
        self._process = subprocess.Popen(
            [*self._command, str(descriptor)],
            stdin=subprocess.DEVNULL,
            pass_fds=[descriptor],
            start_new_session=True,
        )
        waiting = (self._process,)
        Thread(target=self._wait, args=waiting, name="deepinfer-child", daemon=True).start()

    def _is_closed(self, reason: ChannelBroken | None) -> None:
        self._reason = reason
        if not self._closed.done():
            self._closed.set_result(None)

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        status = process.wait()
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody wants to know
            self._loop.call_soon_threadsafe(self._set_exited, status)

    def _set_exited(self, status: int) -> None:
        if not self._exited.done():
            self._exited.set_result(status)


def _in_words(status: int) -> str:
    if status >= 0:
        return f"it ended with exit status {status}"
    try:
        return f"it was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"it was ended by signal {-status}"
