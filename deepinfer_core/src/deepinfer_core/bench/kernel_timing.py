"""How long does a kernel take, next to what the device could do at best?

Calls are recorded where the device has a recorder, so that launching costs nothing, and go
over the sets of arguments in turn, so that none that is large waits in a cache. The two ceilings
are measured on random numbers in the same run: matrices of zeros multiply faster than real ones.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepinfer_core.interfaces.device import Device

__all__ = ["Ceilings", "ceilings", "time_of"]

_REPLAYS = 30
_CALLS = 20
_COPY_BYTES = 1 << 31
"""Of the source: far more than any cache holds."""
_SIDE = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """What the device reached.

    Attributes:
        copy_bytes_per_s: read plus written, by a kernel that scales a long vector.
        flops_per_s: product of square bf16 matrices by torch's library.
    """

    copy_bytes_per_s: float
    flops_per_s: float

    def bound_s(self, moved_bytes: int, flops: int) -> float:
        """The shortest time in which this can be done."""
        return max(moved_bytes / self.copy_bytes_per_s, flops / self.flops_per_s)


def ceilings(device: Device, *, copy_bytes: int = _COPY_BYTES, side: int = _SIDE) -> Ceilings:
    """Measure both; takes a few seconds.

    Args:
        device: where.
        copy_bytes: of the vector.
        side: rows and columns of the matrices.
    """
    import torch

    place = device.torch_device
    source_N = torch.randn(copy_bytes // 2, device=place).bfloat16()
    target_N = torch.empty_like(source_N)
    copy_s = time_of(device, [lambda: torch.mul(source_N, 1.5, out=target_N)])
    left, right = (torch.randn(side, side, device=place).bfloat16() for _ in range(2))
    out = torch.empty_like(left)
    matrix_s = time_of(device, [lambda: torch.mm(left, right, out=out)])
    return Ceilings(
        copy_bytes_per_s=2 * source_N.nbytes / copy_s, flops_per_s=2 * side**3 / matrix_s
    )


def time_of(
    device: Device,
    calls: Sequence[Callable[[], object]],
    *,
    count: int = _CALLS,
    replays: int = _REPLAYS,
) -> float:
    """Median seconds of one call.

    Args:
        device: where they run.
        calls: made in turn; each has its own arguments.
        count: calls in one timed piece.
        replays: timed pieces.
    """
    for call in calls:
        call()
    device.synchronise()

    def piece() -> None:
        for number in range(count):
            calls[number % len(calls)]()

    recording = None if device.recorder is None else device.recorder.record(piece)
    run = piece if recording is None else recording.repeat
    run()
    device.synchronise()
    times = []
    for _ in range(replays):
        began_s = time.perf_counter()
        run()
        device.synchronise()
        times.append(time.perf_counter() - began_s)
    return statistics.median(times) / count
