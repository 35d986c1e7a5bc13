"""What does a store tell of itself: what it holds, what it did, and what went?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

__all__ = ["AGE_BOUNDS_S", "EvictedAges", "Status", "StoreReport"]

Status = Literal["hit", "stored", "exists", "miss", "corrupt", "version", "timeout", "unavailable"]

AGE_BOUNDS_S: Final = (
    60.0, 300.0, 900.0, 3600.0, 10_800.0, 21_600.0, 43_200.0,
    86_400.0, 172_800.0, 259_200.0, 345_600.0, 432_000.0, 604_800.0, 1_209_600.0,
)  # fmt: skip
"""Upper bounds of ages: a minute to a day, then days up to two weeks. Three and seven days are
among them, after which blocks of the classes ``agent`` and ``chat`` expire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictedAges:
    """For how long blocks had been unused when they went.

    Attributes:
        counts: blocks by age, one number for each of ``AGE_BOUNDS_S`` and one for what is above;
            not cumulative.
        total_s: sum of all ages.
    """

    counts: tuple[int, ...] = (0,) * (len(AGE_BOUNDS_S) + 1)
    total_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReport:
    """What a store holds, and what it did since it was opened.

    Attributes:
        records: blocks that are kept.
        used_bytes: that they take.
        capacity_bytes: that they may take; 0: unknown.
        high_bytes: above which a sweep makes room; 0: unknown.
        outcomes: blocks by outcome; those that were only looked for are left out.
        removed: blocks that were removed, by reason: ``expired``, ``room``, ``quota``, ``dropped``,
            ``damaged``, ``discarded``.
        ages: of those that were ``expired``, or went for ``room`` or ``quota``, by reason; a store
            that does not know them leaves them out.
        problem: why the store cannot be used now; empty: it can. Of a store that is made of others,
            also what is wrong with single ones of them.
        work: what it did beside calls, by name; how much of it is up to the store.
        parts: of a store that is made of others what each of them tells, by the place in its
            options that chose it, such as ``tiers.0``; its ``outcomes`` are of blocks that the
            whole was asked for or given. Those that are not open are left out.
    """

    records: int = 0
    used_bytes: int = 0
    capacity_bytes: int = 0
    high_bytes: int = 0
    outcomes: Mapping[Status, int] = field(default_factory=dict)
    removed: Mapping[str, int] = field(default_factory=dict)
    ages: Mapping[str, EvictedAges] = field(default_factory=dict)
    problem: str = ""
    work: Mapping[str, int] = field(default_factory=dict)
    parts: Mapping[str, StoreReport] = field(default_factory=dict)
