"""How do copies go on by themselves that concern host memory which somebody else made?

The driver is told to keep its pages in place; then it copies from and to them without the host.
"""

from __future__ import annotations

import contextlib

import torch

__all__ = ["SharedMemory"]


class SharedMemory:
    """Host memory that one device was told about.

    Args:
        device: a CUDA device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._addresses: set[int] = set()

    def pin(self, memory_B: torch.Tensor) -> bool:
        """Keep memory in place; whether the driver does. Copies are right if it does not."""
        with torch.cuda.device(self._device):
            runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
            if not int(runtime.cudaHostRegister(memory_B.data_ptr(), memory_B.nbytes, 0)):
                self._addresses.add(memory_B.data_ptr())
                return True
            # The next launch would be told of the refusal, as if it had failed itself.
            with contextlib.suppress(RuntimeError):
                torch.zeros(1, device=self._device)
        return False

    def unpin(self, memory_B: torch.Tensor) -> None:
        """End that; nothing happens to memory that was not pinned."""
        if memory_B.data_ptr() in self._addresses:
            self._addresses.remove(memory_B.data_ptr())
            torch.cuda.cudart().cudaHostUnregister(  # type: ignore[no-untyped-call]
                memory_B.data_ptr()
            )
