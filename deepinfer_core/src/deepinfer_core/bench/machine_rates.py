"""How fast can this machine read weights and multiply matrices, measured now?

Both rates are the best of several short trials of the plainest operation there is, on the device
and with the threads that the engine uses, so an engine cannot be faster except by doing less.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from deepinfer_core.interfaces.device import Device

__all__ = ["MachineRates", "machine_rates"]

_TRIALS = 7
_SIDE = 1024
"""Rows and columns of the matrices: large enough that a product reaches the machine's full rate."""
_LEAST_BYTES = 1 << 16
_MOST_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRates:
    """What the machine reached.

    Attributes:
        read_bytes_per_s: reading a buffer again and again.
        flops_per_s: product of square matrices; a product and a sum are two operations.
        matrix_dtype: number format that reached it.
    """

    read_bytes_per_s: float
    flops_per_s: float
    matrix_dtype: str


def machine_rates(device: Device, buffer_bytes: int) -> MachineRates:
    """Measure both rates; takes about a second.

    Args:
        device: where to measure.
        buffer_bytes: size of the buffer, that of the weights: a small model stays in a cache that
            a large one does not fit in. Cut to at most 1 GiB, which no cache holds either.
    """
    import torch

    rates = {name: _matrix_rate(device, getattr(torch, name)) for name in ("float32", "bfloat16")}
    best = max(rates, key=lambda name: rates[name])
    return MachineRates(
        read_bytes_per_s=_read_rate(device, buffer_bytes),
        flops_per_s=rates[best],
        matrix_dtype=best,
    )


def _read_rate(device: Device, buffer_bytes: int) -> float:
    import torch

    count = min(max(buffer_bytes, _LEAST_BYTES), _MOST_BYTES) // 4
    values_N = torch.ones(count, device=device.torch_device)
    square_MM = values_N[: (count // _SIDE) * _SIDE].view(-1, _SIDE)
    vector_M = torch.ones(_SIDE, device=device.torch_device)
    trials: list[tuple[Callable[[], torch.Tensor], torch.Tensor]] = [
        (values_N.sum, values_N),
        (lambda: square_MM @ vector_M, square_MM),
    ]
    return max(4 * read.numel() / _least_s(device, action) for action, read in trials)


def _matrix_rate(device: Device, dtype: torch.dtype) -> float:
    import torch

    left_MM = torch.ones(_SIDE, _SIDE, device=device.torch_device, dtype=dtype)
    right_MM = left_MM.clone()
    return 2 * _SIDE**3 / _least_s(device, lambda: left_MM @ right_MM)


def _least_s(device: Device, action: Callable[[], torch.Tensor]) -> float:
    """The shortest time of an action, after one that does not count."""
    times = []
    for _ in range(_TRIALS + 1):
        began_s = time.perf_counter()
        action()
        device.synchronise()
        times.append(time.perf_counter() - began_s)
    return min(times[1:])
