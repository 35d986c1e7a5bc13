"""In which order does a GPU work, and how does the host learn that it is done?

Launches happen on the caller's thread: they cost microseconds, and a thread of their own would
fight the caller for the interpreter. The host waits for the event behind one piece of work, never
for the device, so later work stays queued.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from deepinfer_core.errors import DeviceError, EngineError
from deepinfer_core.interfaces.device import Event, Stream

__all__ = ["CudaEvent", "CudaStream", "SideStreams"]

Result = TypeVar("Result")


class CudaEvent(Event):
    """The end of one piece of work.

    Args:
        end: recorded behind the work.
        error: what launching raised, if it did.
    """

    def __init__(self, end: torch.cuda.Event, error: Exception | None) -> None:
        self._end = end
        self._error = error

    @property
    def is_done(self) -> bool:
        """Whether the device has come to the event; one that failed comes to none."""
        if self._error is None:
            try:
                return bool(self._end.query())  # type: ignore[no-untyped-call]
            except RuntimeError as error:
                self._error = _failed(error)
        return True

    def wait(self) -> None:
        """Return when the device has come to the event.

        Raises:
            Exception: what launching raised.
            DeviceError: the device failed; the process cannot use it any more.
        """
        if self._error is None:
            try:
                self._end.synchronize()
            except RuntimeError as error:
                self._error = _failed(error)
        if self._error is not None:
            raise self._error


class CudaStream(Stream):
    """A stream of one device.

    Args:
        stream: of the device.
    """

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        self._is_closed = False

    def submit(self, work: Callable[[], None]) -> Event:
        """Launch the work now; the device does it behind all that was given before."""
        if self._is_closed:
            raise EngineError("this stream was closed", hint="make a new one")
        error: Exception | None = None
        end = torch.cuda.Event()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._stream):
            try:
                work()
            except Exception as raised:  # noqa: BLE001 - raised where it is waited for
                error = raised
            end.record(self._stream)
        return CudaEvent(end, error)

    def drain(self) -> None:
        """Wait for everything on this stream; a device that failed has nothing under way."""
        try:
            self._stream.synchronize()
        except RuntimeError:
            return

    def close(self) -> None:
        """Drain; the device keeps its streams in a pool."""
        if not self._is_closed:
            self._is_closed = True
            self.drain()


class SideStreams:
    """Streams for work that is done beside what the current stream is given.

    What such work allocates belongs to its stream, and is handed out again there only: to work that
    begins behind everything that the current stream was given before it, and so behind whatever
    read these tensors.

    Args:
        new: makes a stream.
    """

    def __init__(self, new: Callable[[], torch.cuda.Stream]) -> None:
        self._new = new
        self._idle: list[torch.cuda.Stream] = []

    def beside(self, work: Callable[[], Result]) -> Callable[[], Result]:
        """Launch work behind all that the current stream was given; see ``Device.beside``."""
        side = self._idle.pop() if self._idle else self._new()
        side.wait_stream(torch.cuda.current_stream(side.device))
        with torch.cuda.stream(side):
            result = work()
            end = side.record_event()

        def joined() -> Result:
            torch.cuda.current_stream(side.device).wait_event(end)
            self._idle.append(side)
            return result

        return joined


def _failed(error: RuntimeError) -> DeviceError:
    first = str(error).partition("\n")[0]
    failed = DeviceError(
        f"asked the device for the end of its work, found {first}",
        hint="restart this process; CUDA_LAUNCH_BLOCKING=1 shows which kernel failed",
    )
    failed.__cause__ = error
    return failed
