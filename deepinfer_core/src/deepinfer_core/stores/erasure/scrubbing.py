"""Which fragments are missing or damaged that nobody has read?

A scrub goes round all keys twice over. Looking which children have a fragment costs little, and
finds within hours what a child has lost. Reading all fragments of a block finds what has changed,
header or piece; it is no use of the block, may read so many bytes a second, and makes way for
reads.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from deepinfer_core.interfaces.kv_store import Outcome
from deepinfer_core.stores.calls import is_late
from deepinfer_core.stores.erasure.asking import Asked
from deepinfer_core.stores.erasure.budget import Budget
from deepinfer_core.stores.erasure.fragments import Shape
from deepinfer_core.stores.erasure.listing import Listing
from deepinfer_core.stores.erasure.means import GONE, Means
from deepinfer_core.stores.erasure.reading import AllFragments, Presence
from deepinfer_core.stores.erasure.repairs import Haste

__all__ = ["Scrub", "unheard"]

_PAGES = 16
"""Of keys that a sweep looks for, of each group."""

_BLOCKS_AT_ONCE = 16

_READ_S = 5.0
"""Of a sweep that may go into reading: whoever calls it has more to do."""


class Scrub:
    """Looks at fragments during sweeps.

    Args:
        means: of the store.
        bytes_per_s: of fragments that are read.
    """

    def __init__(self, means: Means, bytes_per_s: float) -> None:
        self._means, self._budget = means, Budget(bytes_per_s)
        self._looking = {group: Listing(means, group) for group in means.shapes}
        self._reading = {group: Listing(means, group) for group in means.shapes}
        self._unread: dict[str, Sequence[bytes]] = dict.fromkeys(means.shapes, ())

    def look(self, deadline_s: float) -> None:
        """Find blocks that lack fragments, among the next ones in order of their keys."""
        for group, listing in self._looking.items():
            for _ in range(_PAGES):
                if is_late(deadline_s):
                    return
                self._means.traffic.make_way()
                keys = listing.next_keys(deadline_s)
                if not keys:
                    break
                self._look_for(group, keys, deadline_s)

    def read(self, deadline_s: float) -> None:
        """Find fragments that are damaged; every block once at most."""
        deadline_s = min(deadline_s, time.monotonic() + _READ_S)
        for group, listing in self._reading.items():
            while not is_late(deadline_s) and self._budget.has_some():
                keys = self._unread[group] or listing.next_keys(deadline_s)
                if not keys:
                    break
                self._unread[group] = keys[_BLOCKS_AT_ONCE:]
                self._means.traffic.make_way()
                self._read(self._means.shapes[group], keys[:_BLOCKS_AT_ONCE], deadline_s)

    def _look_for(self, group: str, keys: Sequence[bytes], deadline_s: float) -> None:
        means, shape = self._means, self._means.shapes[group]
        every = _Everywhere(means.children, means.patience, shape, keys, means.placing)
        every.gather(shape.count, min(deadline_s, means.patience.soon()))
        every.finish()
        for place, key in enumerate(keys):
            if any(one.status == "miss" for one in every.lacking(place).values()):
                self._queue(shape, key, len(every.having[place]))

    def _read(self, shape: Shape, keys: Sequence[bytes], deadline_s: float) -> None:
        means = self._means
        self._budget.spend(len(keys) * shape.count * shape.fragment_bytes)
        frames = means.pool.lease(shape, len(keys))
        try:
            reads = AllFragments(
                means.children,
                means.patience,
                shape,
                keys,
                means.placing,
                frames,
                unheard,
                is_use=False,
            )
            reads.gather(shape.count, min(deadline_s, means.patience.soon()))
            reads.finish()
        finally:
            frames.release()
        means.counts.add("scrubbed", len(keys))
        for place, key in enumerate(keys):
            failed, stripes = reads.failed(place), reads.stripes(place)
            for child, problem in failed.items():
                means.count_bad(child, problem)
            if len(stripes) > 1 or any(one.status in GONE for one in failed.values()):
                self._queue(shape, key, max(map(len, stripes.values()), default=0))

    def _queue(self, shape: Shape, key: bytes, having: int) -> None:
        haste = Haste.IN_DANGER if having == shape.data else Haste.SEEN
        self._means.queue.add(shape.group.name, key, haste)


def unheard(key: bytes, child: int, problem: Outcome, is_readable: bool) -> None:
    """Whoever reads all fragments of a block sees all of that itself."""


class _Everywhere(Presence):
    """Looks on every child."""

    def _is_enough(self, block: Asked) -> bool:
        return False

    def _could_be_enough(self, block: Asked) -> bool:
        return bool(block.pending or block.reserve)
