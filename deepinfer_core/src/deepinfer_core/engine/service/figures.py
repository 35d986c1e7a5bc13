"""How does what an engine counted cross from one process to another?

As plain numbers: turning them into a text takes milliseconds, in which no step could begin.
"""

from __future__ import annotations

from collections.abc import Iterable

from deepinfer_core.engine.service.messages import Figure
from deepinfer_core.telemetry.board import Series
from deepinfer_core.telemetry.metric_list import METRICS

__all__ = ["figures_of", "series_of"]

_METRICS = {metric.name: metric for metric in METRICS}


def figures_of(series: Iterable[Series]) -> list[Figure]:
    """What is sent about a copy of a board."""
    return [Figure(one.metric.name, one.labels, one.value, one.counts) for one in series]


def series_of(figures: Iterable[Figure]) -> list[Series]:
    """The copy again; both processes know the same metrics, as they are of one version."""
    return [
        Series(metric=_METRICS[one.name], labels=one.labels, value=one.value, counts=one.counts)
        for one in figures
    ]
