"""Where do measurements of one engine gather, at a cost that a step can bear?

Plain numbers behind one lock. Whoever measures holds the ``Number`` and ``Distribution`` objects
it needs and changes them while it holds the board's lock; whoever reads gets a copy in which all
figures are of one moment. Nothing here knows a metrics library: one is imported when someone asks
for its form.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from types import MappingProxyType

from deepinfer_core.telemetry.metric import Metric
from deepinfer_core.telemetry.metric_list import METRICS

__all__ = ["Board", "Distribution", "Number", "Series"]


class Number:
    """A count or a level.

    Attributes:
        value: as it stands.
    """

    __slots__ = ("value",)

    def __init__(self, value: float = 0) -> None:
        self.value = value


class Distribution:
    """Observations by bucket.

    Args:
        bounds: upper bounds, ascending; an observation that equals a bound lies below it.

    Attributes:
        counts: observations in each bucket, the last one above all bounds; not cumulative.
        total: sum of all observations.
    """

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value.

        Args:
            value: not negative.
            times: how often it was seen.
        """
        self.counts[bisect_left(self._bounds, value)] += times
        self.total += value * times

    @property
    def count(self) -> int:
        """Observations so far."""
        return sum(self.counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A copy of one series.

    Attributes:
        metric: what is measured.
        labels: a value for each of the metric's labels.
        value: of a counter or gauge; the sum of a histogram.
        counts: as in ``Distribution``; empty for others.
    """

    metric: Metric
    labels: tuple[str, ...]
    value: float
    counts: tuple[int, ...] = ()


class Board:
    """All series of one engine; each of them exists from the start, at zero.

    Args:
        described: the label values of metrics that describe the engine, by the metric's name.
        refresh: called before each reading, with the lock held, to set levels that nobody counts.
        metrics: what is measured.
        labelled: the label values of other metrics whose list does not say them.

    Attributes:
        lock: held by whoever changes a number.
    """

    def __init__(
        self,
        described: Mapping[str, tuple[tuple[str, ...], ...]],
        refresh: Callable[[], None] = lambda: None,
        metrics: tuple[Metric, ...] = METRICS,
        labelled: Mapping[str, tuple[tuple[str, ...], ...]] = MappingProxyType({}),
    ) -> None:
        self.lock = Lock()
        self._refresh = refresh
        self._series: dict[tuple[str, tuple[str, ...]], Number | Distribution] = {}
        self._metrics = {metric.name: metric for metric in metrics}
        for metric in metrics:
            plain: tuple[tuple[str, ...], ...] = ((),)
            if metric.values:
                plain = tuple((value,) for value in metric.values)
            elif metric.labels:
                plain = described.get(metric.name) or labelled.get(metric.name, ())
            for labels in plain:
                made = Distribution(metric.bounds) if metric.bounds else Number(0)
                self._series[metric.name, labels] = made
        for name, values in described.items():
            for labels in values:
                self.number(name, *labels).value = 1

    def number(self, name: str, *labels: str) -> Number:
        """The series of a counter or gauge; a ``KeyError`` if there is none."""
        found = self._series[name, labels]
        assert isinstance(found, Number)
        return found

    def distribution(self, name: str, *labels: str) -> Distribution:
        """The series of a histogram; a ``KeyError`` if there is none."""
        found = self._series[name, labels]
        assert isinstance(found, Distribution)
        return found

    def read(self) -> list[Series]:
        """Copy all series, as of one moment."""
        with self.lock:
            self._refresh()
            # Whoever counts waits for no more than this.
            held = [_held(series) for series in self._series.values()]
        return [
            Series(metric=self._metrics[name], labels=labels, value=value, counts=counts)
            for (name, labels), (value, counts) in zip(self._series, held, strict=True)
        ]


def _held(series: Number | Distribution) -> tuple[float, tuple[int, ...]]:
    if isinstance(series, Number):
        return series.value, ()
    return series.total, tuple(series.counts)
