"""How are the blocks of a call found and read, some at a time?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from deepinfer_core.interfaces.kv_store import Outcome
from deepinfer_core.stores.calls import LATE, is_late
from deepinfer_core.stores.erasure.means import GONE, Means
from deepinfer_core.stores.erasure.reading import FragmentReads, Presence
from deepinfer_core.stores.erasure.repairs import Haste

__all__ = ["BlockReader"]


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
            asking.gather(means.asked, deadline_s)
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
        *,
        is_use: bool,
    ) -> list[Outcome]:
        """Read blocks; whether children are told of a use is said."""
        outcomes: list[Outcome] = []
        while len(outcomes) < len(keys):
            if is_late(deadline_s):
                return outcomes + [LATE] * (len(keys) - len(outcomes))
            window = slice(len(outcomes), len(outcomes) + self._means.window_blocks)
            with self._means.traffic:
                outcomes += self._load_some(
                    group, keys[window], destinations[window], deadline_s, is_use
                )
        return outcomes

    def _load_some(
        self,
        group: str,
        keys: Sequence[bytes],
        destinations: Sequence[bytearray | memoryview],
        deadline_s: float,
        is_use: bool,
    ) -> list[Outcome]:
        means, shape = self._means, self._means.shapes[group]
        frames = means.pool.lease(shape, len(keys))
        try:
            reads = FragmentReads(
                means.children,
                means.patience,
                shape,
                keys,
                means.placing,
                frames,
                partial(means.notice, group),
                is_use=is_use,
            )
            try:
                reads.gather(means.asked, deadline_s)
            finally:
                reads.finish()
            outcomes = [
                reads.assemble(place, means.codec, destination)
                for place, destination in enumerate(destinations)
            ]
        finally:
            frames.release()
        means.counts.add("hedged", reads.hedged)
        means.counts.add("asked_fragments", reads.asked)
        means.counts.add("read_blocks", len(keys))
        reads.tell()
        hits = [place for place, one in enumerate(outcomes) if one.status == "hit"]
        for place, key in enumerate(keys):
            gone = sum(one.status in GONE for one in reads.failed(place).values())
            is_in_danger = outcomes[place].status == "hit" and gone >= shape.parity
            if is_in_danger or len(reads.stripes(place)) > 1:
                means.queue.add(group, key, Haste.IN_DANGER)
        if is_use:
            self._note_uses(group, keys, reads, hits)
        return outcomes

    def _note_uses(
        self, group: str, keys: Sequence[bytes], reads: FragmentReads, hits: Sequence[int]
    ) -> None:
        """Remember uses that children have not heard of."""
        unheard_by: defaultdict[int, list[bytes]] = defaultdict(list)
        for place in hits:
            for child in reads.unheard(place):
                unheard_by[child].append(keys[place])
        for child, unheard in unheard_by.items():
            self._means.late_uses[child].note(group, unheard)
        self._means.queue.note_uses(group, [keys[place] for place in hits])
