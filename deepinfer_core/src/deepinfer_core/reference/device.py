"""What does the engine learn about the CPU it runs on?"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from deepinfer_core.errors import DeviceError
from deepinfer_core.interfaces.component import Properties
from deepinfer_core.interfaces.device import Device, DeviceMemory, Stream
from deepinfer_core.plugin import BuildContext
from deepinfer_core.plugin.cpu_facts import cpu_facts
from deepinfer_core.reference.process_memory import process_memory
from deepinfer_core.reference.promises import PROMISES
from deepinfer_core.reference.worker_stream import WorkerStream

__all__ = ["CpuDevice", "build_cpu"]


class CpuDevice(Device):
    """The CPU. Work outside a stream is done when the call returns."""

    @property
    def properties(self) -> Properties:
        """The promises of this component."""
        return PROMISES

    @property
    def torch_device(self) -> torch.device:
        """Where tensors live."""
        return torch.device("cpu")

    @property
    def collectives_backend(self) -> str:
        """The backend of torch that runs without any device."""
        return "gloo"

    def facts(self) -> Mapping[str, str | int | float | bool]:
        """Name, cores, threads, memory and instruction sets of the CPU, and what torch uses."""
        found: dict[str, str | int | float | bool] = {}
        for name, value in cpu_facts().items():
            if isinstance(value, list | tuple):
                found[name] = " ".join(map(str, value))
            elif isinstance(value, str | int | float | bool):
                found[name] = value
        found["torch"] = torch.__version__
        found["torch_threads"] = torch.get_num_threads()
        found["torch_capability"] = torch.backends.cpu.get_cpu_capability()
        return found

    def memory(self) -> DeviceMemory:
        """Memory of this process now, container limits counted."""
        return process_memory()

    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Zeroed memory.

        The system would promise more memory than it has and kill the process on first use, so the
        free memory is compared here.

        Raises:
            DeviceError: there is not enough memory.
        """
        wanted_bytes = math.prod(shape) * dtype.itemsize
        free_bytes = self.memory().free_bytes
        if wanted_bytes > free_bytes:
            raise DeviceError(
                f"asked for {wanted_bytes} bytes of zeros, found {free_bytes} bytes free",
                hint="give the caches a smaller share of memory, or free some",
            )
        return torch.zeros(shape, dtype=dtype)

    def host_buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Ordinary memory: the host is the device."""
        return torch.empty(shape, dtype=dtype)

    def stream(self) -> Stream:
        """A thread that plays the part of the device."""
        return WorkerStream()

    def synchronise(self) -> None:
        """Nothing is ever under way outside a stream."""

    def peak_flops(self, number_format: str) -> float | None:
        """Not known: clock rates and vector units say little about what a CPU sustains."""
        return None


def build_cpu(options: None, context: BuildContext) -> CpuDevice:
    """Build the device; it has no options."""
    return CpuDevice()
