"""What do several tiers say together of one block, and of all?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from deepinfer_core.interfaces.kv_store import Outcome, Status, StoreReport
from deepinfer_core.stores.tiered.tiers import OpenTier

__all__ = ["merged_report", "worst"]

_ORDER: tuple[Status, ...] = ("timeout", "corrupt", "version", "miss", "unavailable")
"""What is told of a block that no tier gave: a tier that cannot be used is passed over."""

_FOR_ROOM = ("room", "quota")
"""Reasons for which a block goes from one tier and stays in slower ones."""


def worst(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of a block by those of the tiers that were asked, none of them a hit."""
    return min(outcomes, key=lambda one: _ORDER.index(one.status))


def merged_report(tiers: Sequence[OpenTier], outcomes: Mapping[Status, int]) -> StoreReport:
    """The report of all tiers.

    A block in several tiers is one block, so the most of any tier counts. What the last tier has
    room for is the room of all; what made room in a faster one is still kept. What each tier tells
    is there as well; work of stores that tiers consist of joins that of the tiers.
    """
    reports = [tier.store.report() for tier in tiers]
    last = reports[-1]
    removed: dict[str, int] = dict(last.removed)
    work: Counter[str] = Counter()
    for tier, report in zip(tiers, reports, strict=True):
        for reason, count in report.removed.items():
            if reason not in _FOR_ROOM:
                removed[reason] = max(removed.get(reason, 0), count)
        work.update(tier.mover.counts())
        work.update(report.work)
    problems = [
        f"{tier.title}: {problem}"
        for tier, report in zip(tiers, reports, strict=True)
        if (problem := report.problem or tier.mover.problem)
    ]
    return StoreReport(
        records=max(report.records for report in reports),
        used_bytes=last.used_bytes,
        capacity_bytes=last.capacity_bytes,
        high_bytes=last.high_bytes,
        outcomes=outcomes,
        removed=removed,
        ages=last.ages,
        problem="; ".join(problems),
        work=dict(work),
        parts={
            tier.place: replace(report, outcomes=tier.given.outcomes())
            for tier, report in zip(tiers, reports, strict=True)
        },
    )
