"""What is one metric, and how is it declared?

Names, labels and buckets are an interface: dashboards hold them. A renamed metric keeps its old
name beside the new one for two minor versions. Suffixes are those of the Prometheus conventions:
``_total`` for what only grows, ``_seconds`` and ``_ratio`` for units; the prefix is ours.

A label never holds what a user wrote, and its values are known before the first request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = [
    "PREFIX",
    "REQUEST_S",
    "Metric",
    "counter",
    "gauge",
    "histogram",
    "powers_of_two",
    "steps_of_ten",
]

PREFIX: Final = "deepinfer_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric.

    Attributes:
        name: without the prefix.
        kind: what may happen to it.
        help: what is measured, and when.
        labels: names of its labels.
        values: every value of its only label; empty with no label, and where whoever makes the
            board says which series there are.
        bounds: upper bounds of the buckets of a histogram, ascending; above the last all is one.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    @property
    def full_name(self) -> str:
        """The name that a scraper sees."""
        return PREFIX + self.name


def counter(name: str, text: str, *labels: str, values: tuple[str, ...] = ()) -> Metric:
    """A metric that only grows; see ``Metric``."""
    return Metric(name=name, kind="counter", help=text, labels=labels, values=values)


def gauge(name: str, text: str, *labels: str, values: tuple[str, ...] = ()) -> Metric:
    """A level; see ``Metric``."""
    return Metric(name=name, kind="gauge", help=text, labels=labels, values=values)


def histogram(
    name: str,
    text: str,
    bounds: tuple[float, ...],
    *labels: str,
    values: tuple[str, ...] = (),
) -> Metric:
    """Observations by bucket; see ``Metric``."""
    return Metric(
        name=name, kind="histogram", help=text, labels=labels, values=values, bounds=bounds
    )


def steps_of_ten(first: int, last: int) -> tuple[float, ...]:
    """1, 2 and 5 of each power of ten, exact as decimal numbers."""
    return tuple(float(f"{d}e{power}") for power in range(first, last + 1) for d in (1, 2, 5))


def powers_of_two(last: int) -> tuple[float, ...]:
    """1, 2, 4 ... up to that power."""
    return tuple(float(1 << power) for power in range(last + 1))


REQUEST_S: Final = steps_of_ten(-3, 2)
"""Bounds for what a request takes or waits."""
