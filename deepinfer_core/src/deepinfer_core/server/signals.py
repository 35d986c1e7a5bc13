"""When is a service told to stop, and when to stop at once?"""

from __future__ import annotations

import asyncio
import signal
from typing import Self

__all__ = ["StopSignals"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """The signals that stop a service, while it is entered; in the main thread only.

    Attributes:
        first: the service is to stop.
        second: it is not to wait any longer. After that the signals do what they usually do.
    """

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> Self:
        """Take them."""
        for number in _SIGNALS:
            self._loop.add_signal_handler(number, self._told)
        return self

    def __exit__(self, *exception: object) -> None:
        """Give them back."""
        for number in _SIGNALS:
            self._loop.remove_signal_handler(number)

    def _told(self) -> None:
        if self.first.is_set():
            self.second.set()
            self.__exit__()
        self.first.set()
