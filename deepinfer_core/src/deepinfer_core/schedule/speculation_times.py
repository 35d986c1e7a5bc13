"""What do the steps of a running engine say about their cost?

Means of the middle half: single steps are disturbed by whatever else the machine does; but where
most of them are, medians would hide it in short steps and not in long ones.

Other programs, longer texts and warmer chips make a machine slower or faster from one second to the
next. What is run at present shows that; what was run some time ago does not, and if both were
compared as they are, a machine that got slower would seem to be one on which the other is fast. So
the *drift* of what is run is followed, from when both were last run side by side, and the rest is
taken to change by the same factor.

Source: the cost model of DeepInfer 0.1.0, whose price a row beyond the measured curve is a factor
here: a machine that is busy, or was when it was measured, is slower by a factor.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean

from deepinfer_core.schedule.speculation_costs import CostCurve

__all__ = ["Drift", "RecentTimes", "followed"]

_RECENT_SAMPLES = 9
_ENOUGH_SAMPLES = 3


class RecentTimes:
    """Times of steps of one kind, or of draft rounds, by size.

    Args:
        curve: its sizes; what a step is padded to.

    Attributes:
        known_ms: what those sizes took, by place in the curve, of which there were three times: the
            mean of the middle half of the last nine.
    """

    def __init__(self, curve: CostCurve) -> None:
        self.known_ms: dict[int, float] = {}
        self._curve = curve
        self._recent = [deque[float](maxlen=_RECENT_SAMPLES) for _ in curve.rows]

    def add(self, size: int, time_ms: float) -> None:
        """Take one time; of a size beyond the curve, and what took no time, is ignored."""
        place = self._curve.place(size)
        if place == len(self._recent) or time_ms <= 0:
            return
        recent = self._recent[place]
        recent.append(time_ms)
        if len(recent) >= _ENOUGH_SAMPLES:
            self.known_ms[place] = _typical(recent)

    def hoped_ms(self, place: int) -> float:
        """What a known size takes if all but the fastest of fewer than nine times were disturbed.

        Most of its first times may be, and who is taken to be slow is not run again.
        """
        recent = self._recent[place]
        return min(recent) if len(recent) < _RECENT_SAMPLES else self.known_ms[place]

    def scale(self, factor: float) -> None:
        """All of them would take so much longer now."""
        for recent in self._recent:
            for number, time_ms in enumerate(recent):
                recent[number] = factor * time_ms
        self.known_ms = {place: factor * known_ms for place, known_ms in self.known_ms.items()}


class Drift:
    """How much slower steps have become since some were last compared.

    Args:
        since_ms: what each size of a curve took then.

    Attributes:
        factor: the mean of the middle half of the last nine, as ``RecentTimes`` has it, so that
            both follow a change equally fast.
    """

    def __init__(self, since_ms: Sequence[float]) -> None:
        self.factor = 1.0
        self._since_ms = since_ms
        self._ratios = deque([1.0] * _RECENT_SAMPLES, maxlen=_RECENT_SAMPLES)

    def add(self, place: int, time_ms: float) -> None:
        """Take one time.

        Args:
            place: of its size in the curve; one beyond says nothing.
            time_ms: ignored if it is not above 0.
        """
        if time_ms > 0 and place < len(self._since_ms):
            self._ratios.append(time_ms / self._since_ms[place])
            self.factor = _typical(self._ratios)


def followed(curve: CostCurve, known_ms: Mapping[int, float]) -> list[float]:
    """What each size of a curve takes, if some are known; times may fall.

    Sizes that are not known take what was measured, by the factor of the nearest that are: between
    two of them it goes from one to the other, in equal parts from size to size, and outside it
    stays.
    """
    base_ms = curve.milliseconds
    if not known_ms:
        return list(base_ms)
    places = sorted(known_ms)
    factors = [known_ms[place] / base_ms[place] for place in places]
    spread = _between(places, factors, len(base_ms))
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
