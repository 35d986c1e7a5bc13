"""What does the engine ask of the machine it runs on?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from deepinfer_core.interfaces.component import Component
from deepinfer_core.interfaces.recording import Recorder

if TYPE_CHECKING:
    import torch

__all__ = ["Device", "DeviceMemory", "Event", "InlineStream", "Stream"]

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """Memory of one device.

    Attributes:
        total_bytes: what the device has; for a CPU: what this process may use, cgroup limits
            counted.
        free_bytes: what can be taken now.
    """

    total_bytes: int
    free_bytes: int


class Event(ABC):
    """The end of one piece of work on a stream."""

    @property
    @abstractmethod
    def is_done(self) -> bool:
        """Whether ``wait`` would return, or raise, at once; asked by who must not wait."""

    @abstractmethod
    def wait(self) -> None:
        """Return when the work is done.

        Raises:
            Exception: what the work raised; the same again if asked again.
        """


class Stream(ABC):
    """Work in the order in which it was given, while the caller goes on."""

    @abstractmethod
    def submit(self, work: Callable[[], None]) -> Event:
        """Queue work behind all that was given before.

        Work that raises does not keep later work from running.

        Args:
            work: called once, with this stream as the current one of the device.

        Raises:
            EngineError: the stream was closed.
        """

    @abstractmethod
    def drain(self) -> None:
        """Return when nothing is under way; what work raised is not raised here."""

    @abstractmethod
    def close(self) -> None:
        """Drain, and give back what the stream holds. May be called again."""


class _Done(Event):
    """Work that was done when it was given."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    @property
    def is_done(self) -> bool:
        return True

    def wait(self) -> None:
        if self._error is not None:
            raise self._error


class InlineStream(Stream):
    """Does all work at once, on the caller's thread: for debugging, and for tests, on a CPU."""

    def submit(self, work: Callable[[], None]) -> Event:
        """Do the work now."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            return _Done(error)
        return _Done(None)

    def drain(self) -> None:
        """Nothing is ever under way."""

    def close(self) -> None:
        """Nothing is held."""


class Device(Component):
    """Facts, memory, streams, recordings and collectives of one device."""

    @property
    @abstractmethod
    def torch_device(self) -> torch.device:
        """Where tensors live."""

    @property
    @abstractmethod
    def collectives_backend(self) -> str:
        """Name of the torch.distributed backend, e.g. ``gloo``."""

    @abstractmethod
    def facts(self) -> Mapping[str, str | int | float | bool]:
        """What a report shows: name, cores or units, instruction sets, versions."""

    @abstractmethod
    def memory(self) -> DeviceMemory:
        """Memory now."""

    @abstractmethod
    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Zeroed memory that the caller owns, for caches.

        Raises:
            DeviceError: there is not enough memory.
        """

    @abstractmethod
    def host_buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Host memory suited to copies to this device (pinned where that exists)."""

    def reachable(self, table: torch.Tensor) -> torch.Tensor:
        """A table in host memory as a tensor of this device, for work that looks up a few rows.

        A device that reads host memory on its own leaves the table there, whatever its size; this
        body, for others, copies it.

        Args:
            table: on the host; may be mapped from a file.

        Returns:
            The same numbers; on a CPU the same memory.

        Raises:
            DeviceError: there is not enough memory.
        """
        return table.to(self.torch_device)

    def pin(self, memory_B: torch.Tensor) -> None:
        """Let copies between host memory that is there already and this device go on by themselves.

        Such copies are right without it, but may hold up the host. What the device refuses to pin
        stays as it was.

        Args:
            memory_B: bytes that begin on a page, shared with other processes perhaps; they stay
                where they are until ``unpin``.
        """

    def unpin(self, memory_B: torch.Tensor) -> None:
        """End what ``pin`` began; nothing happens where it did nothing."""

    @abstractmethod
    def stream(self) -> Stream:
        """A new stream, behind all work the device was given so far; whoever asked closes it."""

    def beside(self, work: Callable[[], Result]) -> Callable[[], Result]:
        """Launch work that what is launched next need not wait for.

        A device that does one thing after the other, as this body does, does it at once.

        Args:
            work: reads what was launched before, and nothing that is launched until its result is
                asked for overwrites what it reads; gives tensors that it made.

        Returns:
            What gives the result: to be called on the same stream, once, before the work of which
            this is a part ends; what is launched from then on waits for it.
        """
        result = work()
        return lambda: result

    @property
    def recorder(self) -> Recorder | None:
        """What notes down all launches on the device, or None on one that has no such thing.

        Components that take part promise ``graph_safe``, and need not name it.
        """
        return None

    @abstractmethod
    def synchronise(self) -> None:
        """Wait until all work given to the device is done."""

    @abstractmethod
    def peak_flops(self, number_format: str) -> float | None:
        """Largest arithmetic rate in operations a second, or None where it is not known."""
