"""Which stores does the configured one consist of, and what does each of them tell?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from deepinfer_core.interfaces.store_report import StoreReport
from deepinfer_core.telemetry.store_metrics import PART_OUTCOMES, STORE_METRICS

if TYPE_CHECKING:
    from deepinfer_core.plugin.resolved import Pick, Resolved

__all__ = ["WHOLE", "Part", "flat", "part_labels", "parts_of"]

WHOLE = "store"
"""The store as a whole."""


class Part(NamedTuple):
    """A store, as metrics call it.

    Attributes:
        name: the place in the options that chose it, such as ``tiers.0``; or ``store``.
        component: name of its component.
    """

    name: str
    component: str


def parts_of(resolved: Resolved) -> tuple[Part, ...]:
    """The store, then all that it consists of; none if there is no store."""
    if not resolved.fills("kv_store"):
        return ()
    return tuple(_below(resolved.pick("kv_store"), ""))


def _below(pick: Pick, name: str) -> Iterator[Part]:
    yield Part(name or WHOLE, pick.spec.name)
    for part in pick.parts:
        yield from _below(part, ".".join(filter(None, (name, *part.place))))


def part_labels(parts: Sequence[Part]) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Label values of the metrics about parts, by the metric's name."""
    plain: tuple[tuple[str, ...], ...] = tuple(tuple(part) for part in parts)
    by_outcome = tuple((*part, outcome) for part in parts for outcome in PART_OUTCOMES)
    return {
        one.name: by_outcome if "outcome" in one.labels else plain
        for one in STORE_METRICS
        if "part" in one.labels
    }


def flat(report: StoreReport, name: str = "") -> dict[str, StoreReport]:
    """The report of a store, and those of its parts and theirs, by such names."""
    found = {name or WHOLE: report}
    for place, part in report.parts.items():
        found |= flat(part, f"{name}.{place}" if name else place)
    return found
