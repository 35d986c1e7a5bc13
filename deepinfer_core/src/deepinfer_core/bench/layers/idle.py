"""Does the device wait between two decode steps, and what does it do in them?

Read off a trace of the device's own activities: kernels and copies with their begins and ends. A
step ends with the copy that brings its results to the host; the time from there to the next
activity is the gap between two steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepinfer_core.interfaces.device import Device

__all__ = ["Activity", "Total", "Trace", "traced"]

_RESULTS = "Memcpy DtoH"


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """A kernel or copy on the device.

    Attributes:
        name: of the kernel.
        start_us, end_us: by the device's clock.
    """

    name: str
    start_us: float
    end_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """All activities of one name in the span.

    Attributes:
        name: of the kernel.
        share: of the time of all activities.
        step_us: time a step. What runs side by side counts in full for both, so that the sum of all
            names can be longer than a step.
        calls: how many there are.
    """

    name: str
    share: float
    step_us: float
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What a device did, in order.

    Attributes:
        activities: sorted by their starts.
    """

    activities: tuple[Activity, ...]

    @property
    def steps(self) -> int:
        """Steps in the span."""
        return max(len(self._step_ends()) - 1, 0)

    @property
    def span_us(self) -> float:
        """From the end of the first step to the end of the last."""
        ends = self._step_ends()
        return ends[-1] - ends[0] if len(ends) > 1 else 0.0

    @property
    def step_us(self) -> float:
        """Mean time of a step; times ``idle`` it is the sum of its gaps."""
        return self.span_us / max(self.steps, 1)

    @property
    def between_steps(self) -> float:
        """Share of the span in which nothing ran between the end of a step and the next one."""
        ends = set(self._step_ends()[:-1])
        waited_us, busy_until_us = 0.0, 0.0
        for before, after in pairwise(self.activities):
            busy_until_us = max(busy_until_us, before.end_us)
            if before.end_us in ends and _RESULTS in before.name:
                waited_us += max(after.start_us - busy_until_us, 0.0)
        return waited_us / self.span_us if self.span_us else 0.0

    @property
    def idle(self) -> float:
        """Share of the span in which nothing ran at all, gaps between two kernels included."""
        ends = self._step_ends()
        if len(ends) < 2:
            return 0.0
        busy_us, until_us = 0.0, ends[0]
        for one in self.activities:
            start_us, end_us = max(one.start_us, until_us), min(one.end_us, ends[-1])
            busy_us += max(end_us - start_us, 0.0)
            until_us = max(until_us, one.end_us)
        return 1 - busy_us / self.span_us

    def top(self, count: int) -> list[Total]:
        """Names that took most time in the span."""
        time_us: Counter[str] = Counter()
        calls: Counter[str] = Counter()
        ends = self._step_ends()
        for one in self.activities:
            if len(ends) < 2 or not ends[0] <= one.start_us < ends[-1]:
                continue
            time_us[one.name] += one.end_us - one.start_us  # type: ignore[assignment]
            calls[one.name] += 1
        total = sum(time_us.values())
        return [
            Total(name=name, share=us / total, step_us=us / self.steps, calls=calls[name])
            for name, us in time_us.most_common(count)
        ]

    def _step_ends(self) -> list[float]:
        return [one.end_us for one in self.activities if _RESULTS in one.name]


def traced(device: Device, work: Callable[[], object]) -> Trace | None:
    """Run work under torch's profiler; None on a device that has no record of its activities.

    Args:
        device: where the work runs.
        work: waits for its results.
    """
    if device.torch_device.type == "cpu":
        work()
        return None
    import torch

    kind = torch.profiler.ProfilerActivity
    chosen = getattr(kind, device.torch_device.type.upper())
    with torch.profiler.profile(activities=[chosen]) as profile:
        work()
        device.synchronise()
    return Trace(activities=_activities(profile.events()))


def _activities(events: Iterable[Any]) -> tuple[Activity, ...]:
    """What torch's profiler recorded on the device."""
    found = [
        Activity(
            name=event.name,
            start_us=event.time_range.start,
            end_us=event.time_range.end,
        )
        for event in events
        if event.device_type.name != "CPU"
    ]
    return tuple(sorted(found, key=lambda one: one.start_us))
