"""How are the blocks of a call found and read, some at a time?"""

from __future__ import annotations

from collections.abc import Sequence

from deepinfer_core.interfaces.kv_store import Outcome
from deepinfer_core.stores.calls import LATE, is_late
from deepinfer_core.stores.erasure.means import Means
from deepinfer_core.stores.erasure.reading import FragmentReads, Presence

__all__ = ["BlockReader"]

_WORTH_A_REPAIR = ("miss", "corrupt", "version")


class BlockReader:
    """Reads blocks.

    Args:
        means: of the store.
    """

    def __init__(self, means: Means) -> None:
        self._means = means

    def find(self, group: str, keys: Sequence[bytes], deadline_s: float) -> list[Outcome]:
        """Look which blocks have enough fragments."""
        means, shape = self._means, self._means.shapes[group]
        asking = Presence(means.children, means.patience, shape, keys, means.placing)
        try:
            asking.gather(shape.data + 1, deadline_s)
        finally:
            asking.finish()
        means.counts.add("hedged", asking.hedged)
        return [asking.outcome(place) for place in range(len(keys))]

    def load(
        self,
        group: str,
        keys: Sequence[bytes],
        destinations: Sequence[bytearray | memoryview],
        deadline_s: float,
    ) -> list[Outcome]:
        """Read blocks."""
        outcomes: list[Outcome] = []
        while len(outcomes) < len(keys):
            if is_late(deadline_s):
                return outcomes + [LATE] * (len(keys) - len(outcomes))
            window = slice(len(outcomes), len(outcomes) + self._means.window_blocks)
            outcomes += self._load_some(group, keys[window], destinations[window], deadline_s)
        return outcomes

    def _load_some(
        self,
        group: str,
        keys: Sequence[bytes],
        destinations: Sequence[bytearray | memoryview],
        deadline_s: float,
    ) -> list[Outcome]:
        means, shape = self._means, self._means.shapes[group]
        frames = means.pool.lease(shape, len(keys))
        try:
            reads = FragmentReads(
                means.children, means.patience, shape, keys, means.placing, frames
            )
            try:
                reads.gather(shape.data + 1, deadline_s)
            finally:
                reads.finish()
            outcomes = [
                reads.assemble(place, means.codec, destination)
                for place, destination in enumerate(destinations)
            ]
        finally:
            frames.release()
        means.counts.add("hedged", reads.hedged)
        for place, (key, outcome) in enumerate(zip(keys, outcomes, strict=True)):
            self._learn(group, key, reads, place, outcome)
        return outcomes

    def _learn(
        self, group: str, key: bytes, reads: FragmentReads, place: int, outcome: Outcome
    ) -> None:
        """Note what is to be repaired, and who has not heard of this use."""
        means = self._means
        lacking = [
            child
            for child, one in reads.failed(place).items()
            if one.status in _WORTH_A_REPAIR and child >= 0
        ]
        for child in lacking:
            if reads.failed(place)[child].status == "corrupt":
                means.counts.add(f"bad_fragments_{child}")
        if outcome.status == "hit":
            for child in reads.unasked(place):
                means.late_uses[child].note(group, [key])
        stripes = len(reads.stripes(place))
        if stripes > 1 or (stripes and lacking):
            is_urgent = len(lacking) >= means.shapes[group].parity
            means.queue.add(group, key, is_urgent=is_urgent)
