"""What does the engine ask of the machine it runs on?"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepinfer_core.interfaces.component import Component

if TYPE_CHECKING:
    import torch

__all__ = ["Device", "DeviceMemory"]


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


class Device(Component):
    """Facts, memory, streams and collectives of one device.

    Streams, events and graphs join with the first device that has them; a CPU runs in order.
    """

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

    @abstractmethod
    def synchronise(self) -> None:
        """Wait until all work given to the device is done."""

    @abstractmethod
    def peak_flops(self, number_format: str) -> float | None:
        """Largest arithmetic rate in operations a second, or None where it is not known."""
