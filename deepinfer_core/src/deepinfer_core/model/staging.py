"""How do numbers that the host worked out reach the device without a wait?

A copy from ordinary memory makes the host wait for everything that the device has to do before it;
one from pinned memory is queued like any other work.
"""

from collections.abc import Sequence

import numpy as np
import torch

__all__ = ["staged"]

_WITHOUT_PINNED = ("cpu", "meta")


def staged(numbers: Sequence[int] | Sequence[Sequence[int]], device: torch.device) -> torch.Tensor:
    """The numbers as int64 on the device; they may not be there yet when this returns.

    Args:
        numbers: a list, or a table.
        device: where they are wanted by later work on the current stream.
    """
    host = torch.from_numpy(np.array(numbers, dtype=np.int64))
    if device.type not in _WITHOUT_PINNED:
        host = host.pin_memory()
    return host.to(device, non_blocking=True)
