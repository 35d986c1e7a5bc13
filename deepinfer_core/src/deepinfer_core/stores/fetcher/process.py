"""How is a fetcher started, spoken to, and ended?"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator

from deepinfer_core.channel.frames import ChannelBroken
from deepinfer_core.channel.thread_end import ThreadEnd
from deepinfer_core.plugin.children import end_family
from deepinfer_core.stores.fetcher.messages import ENGINE_LANGUAGE, FromFetcher, ToFetcher
from deepinfer_core.telemetry.logs import get_logger

__all__ = ["COMMAND", "FetcherProcess"]

COMMAND = (sys.executable, "-P", "-m", "deepinfer_core.stores.fetcher.child")
"""The fetcher's program."""

_EXIT_S = 1.0
"""Between the end of what it says and its exit status."""


class FetcherProcess:
    """A process that leads a session of its own, so that a terminal's signals do not reach it.

    Args:
        memory: descriptor of the shared memory.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, memory: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [*COMMAND, str(theirs.fileno()), str(memory)],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno(), memory],
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                raise
        self._end: ThreadEnd[ToFetcher, FromFetcher] = ThreadEnd(ours, ENGINE_LANGUAGE)

    @property
    def process_id(self) -> int:
        """Of the system."""
        return self._process.pid

    def send(self, message: ToFetcher) -> None:
        """Say something, without waiting; nothing happens if it has gone."""
        self._end.send(message)

    def messages(self) -> Iterator[FromFetcher]:
        """What it says, until it has gone or is cut off."""
        try:
            yield from self._end.messages()
        except ChannelBroken as error:
            get_logger(__name__).error("channel.broken", reason=str(error))

    def kill(self) -> str:
        """End it by force, if it has not ended; how it ended. It writes nowhere any more."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_S)
        end_family(self._process)
        self._end.close()
        status = self._process.returncode
        return f"exit status {status}" if status >= 0 else f"signal {-status}"
