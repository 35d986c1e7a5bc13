"""Which stand-in for a device does nothing before somebody waits for it?"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from deepinfer_core.interfaces.device import Event, Stream

__all__ = ["LateStream"]


class LateStream(Stream):
    """Does no work before somebody waits for it: what the host changes too early shows."""

    def __init__(self) -> None:
        self._queue: deque[tuple[_Late, Callable[[], None]]] = deque()

    def submit(self, work: Callable[[], None]) -> Event:
        """Remember the work."""
        event = _Late(self)
        self._queue.append((event, work))
        return event

    def run_up_to(self, wanted: Event | None) -> None:
        """Do all work up to the end of ``wanted``, or all there is."""
        while self._queue and (wanted is None or not getattr(wanted, "has_ended", False)):
            event, work = self._queue.popleft()
            event.error = _error_of(work)
            event.has_ended = True

    def drain(self) -> None:
        """Do all work."""
        self.run_up_to(None)

    def close(self) -> None:
        """Do all work."""
        self.drain()


class _Late(Event):
    def __init__(self, stream: LateStream) -> None:
        self.has_ended = False
        self.error: Exception | None = None
        self._stream = stream

    @property
    def is_done(self) -> bool:
        return self.has_ended

    def wait(self) -> None:
        self._stream.run_up_to(self)
        if self.error is not None:
            raise self.error


def _error_of(work: Callable[[], None]) -> Exception | None:
    try:
        work()
    except Exception as error:  # noqa: BLE001 - raised where it is waited for
        return error
    return None
