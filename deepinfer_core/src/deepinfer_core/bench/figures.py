"""How is a measured figure written down, with what it is compared to?

One object a figure: ``name``, ``value``, ``unit``, ``bound`` or ``peer`` with its own value,
``ratio``, ``hardware``, ``date``, ``commit``. Names have the load in brackets, so that two figures
of one name answer one question.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from deepinfer_core.bench.stamp import Stamp

__all__ = ["Figure", "Reference"]

_DIGITS = 6
"""Significant digits of a stored value: more than any clock here resolves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What a figure is compared with.

    Attributes:
        kind: ``bound``: no engine can do better on this machine; ``peer``: another program did it.
        name: what it is, in words.
        value: in the figure's unit, from the same run, above 0.
    """

    kind: Literal["bound", "peer"]
    name: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured value.

    Attributes:
        name: dotted, with the load in brackets: ``latency.batch.p50[input=128,...]``.
        value: the measurement.
        unit: of the value and of the reference.
        reference: what it is compared with.
    """

    name: str
    value: float
    unit: str
    reference: Reference

    @property
    def ratio(self) -> float:
        """The value divided by the reference."""
        return self.value / self.reference.value

    def to_json(self, stamp: Stamp) -> dict[str, Any]:
        """The object that ``deepinfer bench --json`` prints; an interface."""
        reference = {"name": self.reference.name, "value": _rounded(self.reference.value)}
        return {
            "name": self.name,
            "value": _rounded(self.value),
            "unit": self.unit,
            self.reference.kind: reference,
            "ratio": _rounded(self.ratio),
            "hardware": stamp.hardware,
            "date": stamp.date,
            "commit": stamp.commit,
        }


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
