"""For how long is a block kept, and which one goes first?

Blocks expire a time after their last use, which their retention class gives; where room is needed,
those go first that were used longest ago. Ages count in coarse steps, and within one the deepest
blocks of chains go first: so the beginnings of texts outlive their ends, and what is left can be
reached. Pure: stores of any medium decide alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Limits", "LimitsOptions", "limits_of"]


class LimitsOptions(Protocol):
    """What the configuration says; see ``config.store_options``."""

    @property
    def capacity_bytes(self) -> int:
        """Bytes that records may take."""

    @property
    def quota_bytes(self) -> int:
        """Bytes that records of one namespace may take; 0: no limit of its own."""

    @property
    def retention_s(self) -> Mapping[str, float]:
        """Seconds behind its last use after which a block expires, by retention class."""

    @property
    def young_s(self) -> float:
        """Seconds for which a new block makes no room for others."""

    @property
    def high_ratio(self) -> float:
        """Share of the capacity above which a sweep makes room."""

    @property
    def low_ratio(self) -> float:
        """Share of the capacity that is taken when room has been made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a store may keep.

    Attributes:
        capacity_bytes: that records may take.
        quota_bytes: that records of one namespace may take; 0: no limit of its own.
        retention_s: seconds behind its last use after which a block expires, by retention class.
        young_s: for so long a new block makes no room for others: somebody is about to use it.
        high_ratio: share of the capacity above which a sweep makes room.
        low_ratio: share of the capacity that is taken when room has been made.
        age_step_s: last uses within one such step count as equally long ago.
        refresh_ratio: a use is noted once this share of the time to expire has passed since the
            last one that was.
    """

    capacity_bytes: int
    retention_s: Mapping[str, float]
    quota_bytes: int = 0
    young_s: float = 60.0
    high_ratio: float = 0.90
    low_ratio: float = 0.85
    age_step_s: float = 60.0
    refresh_ratio: float = 0.0

    @property
    def high_bytes(self) -> int:
        """Above this a sweep makes room."""
        return int(self.capacity_bytes * self.high_ratio)

    @property
    def low_bytes(self) -> int:
        """Taken when room has been made."""
        return int(self.capacity_bytes * self.low_ratio)

    def rank(self, used_s: float, depth: int) -> tuple[int, int]:
        """The smaller goes first."""
        return int(used_s // self.age_step_s), -depth

    def expires_s(self, used_s: float, retention: str) -> float:
        """When a block expires; at once under a class that is not configured any more."""
        return used_s + self.retention_s.get(retention, 0.0)

    def longer(self, one: str, other: str) -> str:
        """Of two classes the one that keeps blocks longer."""
        return one if self.expires_s(0.0, one) >= self.expires_s(0.0, other) else other

    def is_use_due(self, used_s: float, retention: str, now_s: float) -> bool:
        """Whether a use now is noted."""
        return now_s - used_s >= self.expires_s(0.0, retention) * self.refresh_ratio


def limits_of(options: LimitsOptions, *, age_step_s: float, refresh_ratio: float) -> Limits:
    """What a configuration allows, for a medium on which noting uses costs what it costs."""
    return Limits(
        capacity_bytes=options.capacity_bytes,
        quota_bytes=options.quota_bytes,
        retention_s=dict(options.retention_s),
        young_s=options.young_s,
        high_ratio=options.high_ratio,
        low_ratio=options.low_ratio,
        age_step_s=age_step_s,
        refresh_ratio=refresh_ratio,
    )
