"""Where and how are blocks kept? What a configuration says of it, in plain data."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StorePlace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePlace:
    """What ``options.PosixOptions`` says beside the limits.

    Attributes:
        folder: of the store.
        lane: subfolder of each group's folder that this process writes to.
        segment_bytes: length at which a file is full.
        durable: whether blocks are on the medium before they can be found.
        refresh_s: seconds between looks for what others wrote; 0: only when opened and swept.
    """

    folder: str
    lane: str = "0"
    segment_bytes: int = 1 << 30
    durable: bool = True
    refresh_s: float = 1.0
