"""What does the engine learn about, and get from, one NVIDIA GPU?

Memory that torch holds in reserve counts as free: the allocator hands it out again. Caches are
allocated like everything else, so that one allocator knows all of the memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
from deepinfer_core.errors import DeviceError
from deepinfer_core.interfaces.component import Properties
from deepinfer_core.interfaces.device import Device, DeviceMemory, Stream
from deepinfer_core.interfaces.recording import Recorder
from deepinfer_core.plugin import BuildContext
from deepinfer_core.telemetry.logs import get_logger

from deepinfer_nvidia.device.graphs import GraphRecorder
from deepinfer_nvidia.device.host_tables import reachable
from deepinfer_nvidia.device.peaks import peak_flops
from deepinfer_nvidia.device.shared_memory import SharedMemory
from deepinfer_nvidia.device.streams import CudaStream, SideStreams
from deepinfer_nvidia.options import CudaOptions

__all__ = ["CudaDevice", "build"]

Result = TypeVar("Result")


class CudaDevice(Device):
    """One GPU.

    Args:
        index: its number among those that this process may use.

    Raises:
        DeviceError: there is no such device, or torch cannot use it.
    """

    def __init__(self, index: int = 0) -> None:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if index >= count:
            raise DeviceError(
                f"asked for CUDA device {index}, found {count} that torch can use",
                hint="deepinfer plugins --why nvidia.cuda says what is missing",
            )
        self._device = torch.device("cuda", index)
        self._recorder = GraphRecorder(self._new_stream())
        self._sides = SideStreams(self._new_stream)
        self._shared = SharedMemory(self._device)

    @property
    def properties(self) -> Properties:
        """The promises of this component: it computes nothing."""
        return Properties(batch_invariant="always", deterministic="always", graph_safe="always")

    @property
    def torch_device(self) -> torch.device:
        """Where tensors live."""
        return self._device

    @property
    def collectives_backend(self) -> str:
        """The backend of torch for NVIDIA GPUs."""
        return "nccl"

    def facts(self) -> Mapping[str, str | int | float | bool]:
        """Name, capability, units and memory of the GPU, and what torch was built for."""
        found = torch.cuda.get_device_properties(self._device)
        return {
            "model": found.name,
            "capability": f"{found.major}.{found.minor}",
            "cores": found.multi_processor_count,
            "memory_bytes": found.total_memory,
            "l2_bytes": found.L2_cache_size,
            "torch": torch.__version__,
            "torch_cuda": torch.version.cuda or "",
        }

    def memory(self) -> DeviceMemory:
        """Memory now; what other processes hold is not free."""
        free_bytes, total_bytes = torch.cuda.mem_get_info(self._device)
        reserved = torch.cuda.memory_reserved(self._device)
        idle = reserved - torch.cuda.memory_allocated(self._device)
        return DeviceMemory(total_bytes=total_bytes, free_bytes=free_bytes + idle)

    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Zeroed memory.

        Raises:
            DeviceError: there is not enough memory.
        """
        wanted_bytes = math.prod(shape) * dtype.itemsize
        try:
            return torch.zeros(shape, dtype=dtype, device=self._device)
        except RuntimeError as error:
            # A size beyond the address space raises a plain RuntimeError.
            free_bytes = self.memory().free_bytes
            if not isinstance(error, torch.OutOfMemoryError) and wanted_bytes <= free_bytes:
                raise
            raise DeviceError(
                f"asked for {wanted_bytes} bytes of zeros, found {free_bytes} bytes free",
                hint="give the caches a smaller share of memory, or free some",
            ) from error

    def host_buffer(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Pinned memory, from torch's cache of it: it is reused when copies from it are done."""
        return torch.empty(shape, dtype=dtype, pin_memory=True)

    def reachable(self, table: torch.Tensor) -> torch.Tensor:
        """The table in pinned host memory, which kernels read over the bus."""
        return reachable(table, self._device)

    def pin(self, memory_B: torch.Tensor) -> None:
        """Register memory with the driver; a refusal is logged."""
        if not self._shared.pin(memory_B):
            get_logger(__name__).warning("memory.not_pinned", nbytes=memory_B.nbytes)

    def unpin(self, memory_B: torch.Tensor) -> None:
        """Take memory off the driver's books."""
        self._shared.unpin(memory_B)

    def stream(self) -> Stream:
        """A stream of the device, behind what the current stream was given."""
        stream = self._new_stream()
        stream.wait_stream(torch.cuda.current_stream(self._device))
        return CudaStream(stream)

    def beside(self, work: Callable[[], Result]) -> Callable[[], Result]:
        """Launch work on a stream of its own, which a capture follows."""
        return self._sides.beside(work)

    @property
    def recorder(self) -> Recorder:
        """Captures launches as CUDA graphs."""
        return self._recorder

    def synchronise(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize(self._device)

    def peak_flops(self, number_format: str) -> float | None:
        """Rate of the data sheet, or None for a device or format that it does not list."""
        return peak_flops(torch.cuda.get_device_name(self._device), number_format)

    def _new_stream(self) -> torch.cuda.Stream:
        return torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]


def build(options: CudaOptions, context: BuildContext) -> CudaDevice:
    """Build the device that the options name, and make it the current one of this thread.

    The kernels that prepare weights while an engine loads are launched on the current device; those
    of a step find it through their stream, on any thread.
    """
    device = CudaDevice(options.index)
    torch.cuda.set_device(device.torch_device)
    return device
