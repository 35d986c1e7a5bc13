"""How does a metrics scraper, or an application with metrics of its own, see an engine's figures?

As a registry of the Prometheus client library with one collector in it, which copies the engine's
board when it is asked. Each engine has its own registry. The library's own counters are not used:
they would share files between engines where its multi-process mode is on, and cost a lock each.

Importing this module imports the library, so import it when metrics are wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, groupby
from typing import TypeAlias

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from deepinfer_core.telemetry.board import Board, Series
from deepinfer_core.telemetry.metric import Metric

__all__ = ["exposition", "family_texts", "new_registry"]

_Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


def new_registry(board: Board) -> CollectorRegistry:
    """A registry that shows one board.

    Other collectors may join it; names that begin with ``deepinfer_`` are ours.
    """
    registry = CollectorRegistry()
    registry.register(_BoardCollector(board))
    return registry


def exposition(registry: CollectorRegistry) -> str:
    """All metrics of a registry in the Prometheus text format."""
    return generate_latest(registry).decode()


def family_texts(series: Iterable[Series]) -> Iterator[str]:
    """The same text of a copy of a board, a metric at a time.

    A text as a whole takes milliseconds, so whoever must not be held up makes it in these parts.

    Args:
        series: as ``Board.read`` gives them.
    """
    for metric, group in groupby(series, _metric):
        yield generate_latest(_Families([_family(metric, list(group))])).decode()


class _Families(Collector):
    def __init__(self, families: list[_Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[_Family]:
        """As they are."""
        return self._families


class _BoardCollector(Collector):
    def __init__(self, board: Board) -> None:
        self._board = board

    def describe(self) -> Iterable[_Family]:
        """Names alone, so that a clash shows when a collector joins."""
        return self.collect()

    def collect(self) -> Iterable[_Family]:
        """One family for each metric."""
        series = self._board.read()
        return [_family(metric, list(group)) for metric, group in groupby(series, _metric)]


def _metric(series: Series) -> Metric:
    return series.metric


def _family(metric: Metric, group: list[Series]) -> _Family:
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.full_name, metric.help, labels=metric.labels)
        for series in group:
            histogram.add_metric(series.labels, _buckets(series), series.value)
        return histogram
    family = _SIMPLE[metric.kind](metric.full_name, metric.help, labels=metric.labels)
    for series in group:
        family.add_metric(series.labels, series.value)
    return family


_SIMPLE: dict[str, type[CounterMetricFamily] | type[GaugeMetricFamily]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
}


def _buckets(series: Series) -> list[tuple[str, int]]:
    bounds = [*map(repr, series.metric.bounds), "+Inf"]
    return list(zip(bounds, accumulate(series.counts), strict=True))
