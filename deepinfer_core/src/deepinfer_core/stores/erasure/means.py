"""What do reading, writing and mending of blocks share while a store is open?"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from deepinfer_core.interfaces.kv_store import Outcome
from deepinfer_core.stores.erasure.budget import Traffic
from deepinfer_core.stores.erasure.child import Child
from deepinfer_core.stores.erasure.codec import Codec
from deepinfer_core.stores.erasure.fragments import Shape
from deepinfer_core.stores.erasure.frames import FramePool
from deepinfer_core.stores.erasure.gathering import Patience
from deepinfer_core.stores.erasure.placing import Placing
from deepinfer_core.stores.erasure.repairs import Haste, RepairQueue
from deepinfer_core.stores.late_uses import LateUses

__all__ = ["GONE", "Means", "WorkCounts"]

GONE = ("miss", "corrupt", "version")
"""A child that says so can be given the fragment again."""


class WorkCounts:
    """What was done, by name; counted from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, name: str, count: int = 1) -> None:
        """Count something."""
        if count:
            with self._lock:
                self._counts[name] += count

    def by_name(self) -> Mapping[str, int]:
        """All of it."""
        with self._lock:
            return dict(self._counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """Everything of one opening.

    Attributes:
        children: all of them; open, or down.
        shapes: how blocks are cut, by group.
        codec: computes pieces.
        patience: how long children are waited for.
        placing: who has which fragment.
        asked: children that a read asks at first.
        late_uses: for each child those that it has not heard of.
        queue: blocks that lack fragments.
        traffic: reads that are under way.
        pool: memory for fragments.
        counts: what was done.
    """

    children: tuple[Child, ...]
    shapes: Mapping[str, Shape]
    codec: Codec
    patience: Patience
    placing: Placing
    asked: int
    late_uses: tuple[LateUses, ...]
    queue: RepairQueue
    traffic: Traffic = field(default_factory=Traffic)
    pool: FramePool = field(default_factory=FramePool)
    counts: WorkCounts = field(default_factory=WorkCounts)

    def notice(
        self, group: str, key: bytes, child: int, problem: Outcome, is_readable: bool
    ) -> None:
        """Something is wrong with a fragment of a block that somebody wants, and may have got."""
        self.count_bad(child, problem)
        if is_readable and problem.status in GONE:
            self.queue.add(group, key, Haste.USED)

    def count_bad(self, child: int, problem: Outcome) -> None:
        """Count a fragment that is not what it should be, by child."""
        if problem.status == "corrupt":
            self.counts.add(f"bad_fragments_{child}")

    @property
    def window_blocks(self) -> int:
        """Blocks that are asked for together."""
        return min(max(one.store.capabilities.batch_blocks for one in self.children), 64)
