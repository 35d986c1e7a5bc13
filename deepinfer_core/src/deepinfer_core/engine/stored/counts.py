"""What did an engine take from a store and give it, and why was it nothing?"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from deepinfer_core.stores.traffic import TrafficCounts

__all__ = ["ENDINGS", "UNASKED", "WRITINGS", "StoreCounts"]

ENDINGS = (
    "done", "miss", "corrupt", "version", "timeout", "unavailable", "full", "lost", "abandoned",
    "no_room", "failed", "left",
)  # fmt: skip
"""How a fetch ends: what ``Ended`` says; ``abandoned``: computing is quicker by now; ``no_room``:
blocks are short; ``failed``: a copy to the device did; ``left``: its request ended."""

UNASKED = ("in_memory", "too_short", "no_room", "busy")
"""Why a store is not asked for a sequence: all that it may reuse is cached; that is not a block;
blocks are short; as many prefixes as may be are under way."""

WRITINGS = ("stored", "exists", "timeout", "unavailable", "lost", "dropped", "failed")
"""What becomes of finished blocks: what the store says; ``dropped``: nobody had time for them;
``failed``: a copy from the device did."""


@dataclass(slots=True)
class StoreCounts:
    """Figures since the engine was made; only the engine's thread changes them.

    Attributes:
        fetches: by how they ended.
        unasked: sequences that the store was not asked for, by reason.
        states: states that came.
        written: blocks and states that never came to the store, by reason.
        backlog: blocks that wait to be copied now.
        traffic: what the fetcher counted, a moment ago.
    """

    fetches: Counter[str] = field(default_factory=Counter)
    unasked: Counter[str] = field(default_factory=Counter)
    states: int = 0
    written: Counter[str] = field(default_factory=Counter)
    backlog: int = 0
    traffic: TrafficCounts = field(default_factory=TrafficCounts)
