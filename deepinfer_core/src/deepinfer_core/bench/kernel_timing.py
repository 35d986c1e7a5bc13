"""How long does a kernel take, next to what the device could do at best?

Calls are recorded where the device has a recorder, so that launching costs nothing, and go
over the sets of arguments in turn, so that none that is large waits in a cache. The two ceilings
are measured on random numbers in the same run: matrices of zeros multiply faster than real ones.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepinfer_core.interfaces.device import Device

__all__ = ["Ceilings", "Sample", "ceilings", "samples_in_turns", "time_of"]

_REPLAYS = 30
_CALLS = 20
_FIRST_REPLAYS = 5
_FAR_BEHIND = 1.3
"""Whose median of the first replays is so many times the fastest is out of the running."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Times of one call.

    Attributes:
        seconds: their median.
        spread_s: between their quartiles.
    """

    seconds: float
    spread_s: float


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
    run = _recorded(device, calls, count)
    return statistics.median(_times(device, run, replays)) / count


def samples_in_turns(
    device: Device,
    contenders: Sequence[Sequence[Callable[[], object]]],
    *,
    count: int = _CALLS,
    replays: int = _REPLAYS,
) -> list[Sample]:
    """Times of several implementations, whose replays take turns.

    So what slows the device down for a while slows all of them. Those that a few replays show to be
    far behind the fastest are not repeated further.

    Args:
        device: where they run.
        contenders: of each, the calls that are made in turn.
        count: calls in one timed piece.
        replays: timed pieces.
    """
    runs = [_recorded(device, calls, count) for calls in contenders]
    times: list[list[float]] = [[] for _ in runs]

    def go_on(numbers: Iterable[int], rounds: int) -> None:
        for _ in range(rounds):
            for number in numbers:
                times[number] += _times(device, runs[number], 1)

    go_on(range(len(runs)), _FIRST_REPLAYS)
    medians = [statistics.median(each) for each in times]
    near = [n for n, median in enumerate(medians) if median <= _FAR_BEHIND * min(medians)]
    go_on(near, replays - _FIRST_REPLAYS)
    return [_sample(each, count) for each in times]


def _sample(times: Sequence[float], count: int) -> Sample:
    first, median, third = statistics.quantiles(times, n=4, method="inclusive")
    return Sample(seconds=median / count, spread_s=(third - first) / count)


def _recorded(
    device: Device, calls: Sequence[Callable[[], object]], count: int
) -> Callable[[], object]:
    """What makes ``count`` calls; warm."""
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
    return run


def _times(device: Device, run: Callable[[], object], replays: int) -> list[float]:
    times = []
    for _ in range(replays):
        began_s = time.perf_counter()
        run()
        device.synchronise()
        times.append(time.perf_counter() - began_s)
    return times
