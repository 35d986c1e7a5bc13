"""Was it the service that was slow, or the generator that measured it?

A generator that has no time left reads bytes late and sends requests late, and both look like a
slow service. Two readings show it: the share of one processor that it used, and how late a timer
of its event loop fires.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from deepinfer_core.bench.percentile import percentile

__all__ = ["Headroom", "Watch"]

_PERIOD_S = 0.01
_BUSY_SHARE = 0.9
"""Above it a process of one thread has next to nothing left for bursts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """What the generator had left.

    Attributes:
        busy_share: processor time by elapsed time, 1 is a whole core.
        lag_p99_s: how late its timers fired, 99th percentile.
    """

    busy_share: float
    lag_p99_s: float

    def is_bottleneck(self, shortest_s: float) -> bool:
        """Whether the figures of the run may be the generator's own.

        Args:
            shortest_s: the shortest duration that was measured; a lag as long as that hides it.
        """
        return self.busy_share >= _BUSY_SHARE or self.lag_p99_s >= shortest_s


class Watch:
    """Watches its event loop between ``async with`` and the end of the block."""

    def __init__(self) -> None:
        self._lags_s: list[float] = []
        self._task: asyncio.Task[None] | None = None
        self._began: tuple[float, float] = (0.0, 0.0)
        self._ended: tuple[float, float] = (0.0, 0.0)

    async def __aenter__(self) -> Watch:
        self._began = (time.perf_counter(), time.process_time())
        self._task = asyncio.create_task(self._sample())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended = (time.perf_counter(), time.process_time())
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    @property
    def found(self) -> Headroom:
        """Of the whole block; known when it has ended."""
        (wall, cpu), (wall_then, cpu_then) = self._ended, self._began
        return Headroom(
            busy_share=(cpu - cpu_then) / (wall - wall_then),
            lag_p99_s=percentile(self._lags_s or [0.0], 99),
        )

    async def _sample(self) -> None:
        while True:
            due_s = time.perf_counter() + _PERIOD_S
            await asyncio.sleep(_PERIOD_S)
            self._lags_s.append(max(0.0, time.perf_counter() - due_s))
