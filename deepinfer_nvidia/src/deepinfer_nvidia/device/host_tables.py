"""How does a GPU read rows of a table that is larger than its memory?

The table is copied once into host memory that the driver keeps in place, and a tensor of the device
is laid over the same addresses: kernels then read the rows that they want over the bus. Such memory
has one address for the host and the device.
"""

from __future__ import annotations

import weakref

import torch
from deepinfer_core.errors import DeviceError

__all__ = ["reachable"]


class _Pinned:
    """Bytes of the host, registered with the driver as long as this lives.

    Args:
        host: uint8, one dimension, contiguous, not empty.

    Raises:
        DeviceError: the driver refuses.
    """

    def __init__(self, host: torch.Tensor) -> None:
        runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        code = int(runtime.cudaHostRegister(host.data_ptr(), host.nbytes, 0))
        if code:
            raise DeviceError(
                f"asked to pin a table of {host.nbytes} bytes, found CUDA error {code}",
                hint="raise the limit of locked memory (ulimit -l), or free host memory",
            )
        # The finaliser holds the memory, so that it is unregistered before it is freed.
        weakref.finalize(self, _unregister, host)
        self.__cuda_array_interface__ = {
            "data": (host.data_ptr(), False),
            "shape": tuple(host.shape),
            "typestr": "|u1",
            "version": 3,
        }


def reachable(table: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Lay a tensor of the device over a pinned copy of a table.

    Args:
        table: on the host, of any dtype; may be mapped from a file.
        device: a CUDA device.

    Returns:
        Shape and dtype of ``table``. Its memory is freed with the last tensor that refers to it.

    Raises:
        DeviceError: there is not enough host memory, or the driver refuses to pin it.
    """
    if not table.numel():
        return table.to(device)
    try:
        host = torch.empty(table.nbytes, dtype=torch.uint8)
    except RuntimeError as error:
        raise DeviceError(
            f"asked for {table.nbytes} bytes of host memory for a table, found less",
            hint="the Engram tables must fit into the memory of the host",
        ) from error
    host.copy_(table.contiguous().view(-1).view(torch.uint8))
    with torch.cuda.device(device):
        placed: torch.Tensor = torch.as_tensor(_Pinned(host), device=device)
    return placed.view(table.dtype).view(table.shape)


def _unregister(host: torch.Tensor) -> None:
    torch.cuda.cudart().cudaHostUnregister(host.data_ptr())  # type: ignore[no-untyped-call]
