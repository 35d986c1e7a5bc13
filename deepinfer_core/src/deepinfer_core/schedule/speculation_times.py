"""What do the steps of a running engine say about their cost?

Means of the middle half: single steps are disturbed by whatever else the machine does; but where
most of them are, medians would hide it in short steps and not in long ones.

Source: the cost model of DeepInfer 0.1.0, whose price a row beyond the measured curve is a factor
here: a machine that is busy, or was when it was measured, is slower by a factor.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean

from deepinfer_core.schedule.speculation_costs import CostCurve

__all__ = ["RecentTimes"]

_RECENT_SAMPLES = 9
_ENOUGH_SAMPLES = 3


class RecentTimes:
    """Times of steps, or of draft rounds, by size.

    Args:
        curve: what was measured before the first of them.
    """

    def __init__(self, curve: CostCurve) -> None:
        self._curve = curve
        self._recent = [deque[float](maxlen=_RECENT_SAMPLES) for _ in curve.rows]

    def add(self, size: int, time_ms: float) -> None:
        """Take one time; of a size beyond the curve, and what took no time, is ignored."""
        place = self._curve.place(size)
        if place == len(self._recent) or time_ms <= 0:
            return
        self._recent[place].append(time_ms)

    def knows(self, size: int) -> bool:
        """Whether there were 3 of that size at least."""
        place = self._curve.place(size)
        return place < len(self._recent) and len(self._recent[place]) >= _ENOUGH_SAMPLES

    def times_ms(self) -> list[float]:
        """What each size of the curve takes; times may fall.

        The mean of the middle half of the last 9, where there were 3. Other sizes take what was
        measured, by the factor of the nearest that are known: between two of them it goes from one
        to the other, in equal parts from size to size, and outside it stays.
        """
        base_ms = self._curve.milliseconds
        known_ms = {
            place: _typical(times)
            for place, times in enumerate(self._recent)
            if len(times) >= _ENOUGH_SAMPLES
        }
        if not known_ms:
            return list(base_ms)
        factors = [time_ms / base_ms[place] for place, time_ms in known_ms.items()]
        spread = _between([*known_ms], factors, len(base_ms))
        return [
            known_ms.get(place, factor * ms)
            for place, (factor, ms) in enumerate(zip(spread, base_ms, strict=True))
        ]


def _typical(times: Iterable[float]) -> float:
    ordered = sorted(times)
    cut = max(1, len(ordered) // 4)
    return fmean(ordered[cut:-cut])


def _between(known: Sequence[int], values: Sequence[float], count: int) -> Iterator[float]:
    """Values at 0 up to ``count`` from those at ``known`` places, ascending, by straight lines."""
    for place in range(count):
        after = bisect_left(known, place)
        if after == 0 or after == len(known):
            yield values[min(after, len(known) - 1)]
            continue
        first, last = known[after - 1], known[after]
        share = (place - first) / (last - first)
        yield values[after - 1] + share * (values[after] - values[after - 1])
