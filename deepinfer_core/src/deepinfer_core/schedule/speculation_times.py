"""What do the steps of a running engine say about their cost?

Medians throughout, because single steps are disturbed by whatever else the machine does. Each class
takes one measurement at a time and answers at any moment; both are cheap enough for every step.

Source: the cost model of DeepInfer 0.1.0.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from statistics import median

from deepinfer_core.schedule.speculation_costs import CostCurve

__all__ = ["ContextSlope", "RecentTimes"]

_WINDOW_STEPS = 5000
_SLOPE_SAMPLES = 10
_RECENT_SAMPLES = 9
_ENOUGH_RECENT = 5


class ContextSlope:
    """Price of a row beyond the measured curve: contexts are longer than where it was measured.

    Args:
        curve: what a step was measured to take.
        window_steps: the newest steps that count.
    """

    def __init__(self, curve: CostCurve, window_steps: int = _WINDOW_STEPS) -> None:
        self._curve = curve
        self._window_steps = window_steps
        self._steps: deque[tuple[int, float]] = deque()
        self._sorted: list[list[float]] = [[] for _ in curve.rows]

    def add(self, rows: int, forward_ms: float) -> None:
        """Take the time of one decode step's forward pass; one larger than the curve is ignored."""
        place = self._curve.place(rows)
        if place == len(self._curve.rows):
            return
        each_ms = (forward_ms - self._curve.milliseconds[place]) / self._curve.rows[place]
        self._steps.append((place, each_ms))
        insort(self._sorted[place], each_ms)
        if len(self._steps) > self._window_steps:
            old_place, old_ms = self._steps.popleft()
            values = self._sorted[old_place]
            del values[bisect_left(values, old_ms)]

    @property
    def slope_ms(self) -> float:
        """Median over sizes of the median of each; sizes with fewer than 10 steps do not count.

        May be negative. 0 while no size counts.
        """
        medians = [_middle(each) for each in self._sorted if len(each) >= _SLOPE_SAMPLES]
        return median(medians) if medians else 0.0


class RecentTimes:
    """Recent times of something that depends on how many sequences there are."""

    def __init__(self) -> None:
        self._all: deque[float] = deque(maxlen=_RECENT_SAMPLES)
        self._by_sequences: dict[int, deque[float]] = {}

    def add(self, sequences: int, time_ms: float) -> None:
        """Take one measurement."""
        self._all.append(time_ms)
        self._by_sequences.setdefault(sequences, deque(maxlen=_RECENT_SAMPLES)).append(time_ms)

    def estimate_ms(self, sequences: int) -> float:
        """Median of the last 9 at this number of sequences; at any number if those are under 5.

        0 while there are fewer than 5 of any.
        """
        for times in (self._by_sequences.get(sequences, ()), self._all):
            if len(times) >= _ENOUGH_RECENT:
                return median(times)
        return 0.0


def _middle(ordered: list[float]) -> float:
    """Median of sorted numbers."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
