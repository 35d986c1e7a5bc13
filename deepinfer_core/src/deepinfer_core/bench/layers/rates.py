"""How fast does a device copy, multiply, and read host memory, measured now?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from deepinfer_core.bench.kernel_timing import ceilings, time_of
from deepinfer_core.bench.layers.bound import Rates

if TYPE_CHECKING:
    from deepinfer_core.interfaces.device import Device

__all__ = ["measured_rates"]

_TABLE_SHARE = 8
"""The table in host memory is this much smaller than the vector that is copied."""


def measured_rates(device: Device, *, copy_bytes: int, side: int) -> Rates:
    """Measure all three; a few seconds.

    Args:
        device: where.
        copy_bytes: of the vector that is copied.
        side: rows and columns of the matrices.
    """
    found = ceilings(device, copy_bytes=copy_bytes, side=side)
    table = device.reachable(torch.ones(copy_bytes // _TABLE_SHARE, dtype=torch.uint8))
    target = torch.empty(table.shape, dtype=table.dtype, device=device.torch_device)
    # A kernel that reads the table, as a look-up does; a copy would take another engine.
    read_s = time_of(device, [lambda: torch.add(table, 1, out=target)], count=2, replays=5)
    return Rates(
        copy_bytes_per_s=found.copy_bytes_per_s,
        flops_per_s=found.flops_per_s,
        host_bytes_per_s=table.nbytes / read_s,
    )
