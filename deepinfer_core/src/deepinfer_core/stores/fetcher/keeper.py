"""How is a batch of finished blocks stored, without storing twice what is there already?"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from deepinfer_core.interfaces.kv_store import BlockGroup, StoreItem
from deepinfer_core.stores.fetcher.endpoint import Endpoint
from deepinfer_core.stores.fetcher.messages import KeepItem
from deepinfer_core.stores.fetcher.segment import Segment
from deepinfer_core.stores.fetcher.write_queue import Batch

__all__ = ["Keeper"]


class Keeper:
    """Stores batches in one store; of one thread.

    Args:
        endpoint: of the store.
        used: told a group and keys of blocks that are there, and a class of traffic.
        groups: of blocks, by name.
        segment: where blocks lie.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        used: Callable[[str, Sequence[bytes], str], None],
        groups: Mapping[str, BlockGroup],
        segment: Segment,
    ) -> None:
        self._endpoint, self._used = endpoint, used
        self._groups, self._segment = groups, segment

    def store(self, batch: Batch) -> list[str]:
        """Store a batch.

        Returns:
            The outcome of each block: ``stored``, ``exists``, ``timeout`` or ``unavailable``.
        """
        by_s = math.inf  # no prefix waits; it has the time that every call has
        keys = [one.item.key for one in batch.blocks]
        there = [one.status for one in self._endpoint.check(batch.group, keys, by_s)]
        if any(one not in ("hit", "miss") for one in there):
            return ["timeout" if one == "timeout" else "unavailable" for one in there]
        missing = [at for at, one in enumerate(there) if one == "miss"]
        items = [self._item(batch.group, batch.blocks[at].item) for at in missing]
        outcomes = ["exists"] * len(there)
        kept = self._endpoint.keep(batch.group, items, by_s) if items else []
        for at, outcome in zip(missing, kept, strict=True):
            outcomes[at] = outcome.status
        for block, status in zip(batch.blocks, there, strict=True):
            if status == "hit":
                retention = self._retention(batch.group, block.item)
                self._used(batch.group, [block.item.key], retention)
        return outcomes

    def _item(self, group: str, item: KeepItem) -> StoreItem:
        return StoreItem(
            key=item.key,
            data=self._segment.view(group, item.number),
            namespace=item.namespace,
            depth=item.depth,
            retention=self._retention(group, item),
        )

    def _retention(self, group: str, item: KeepItem) -> str:
        """Traffic does not decide how long states are kept."""
        return "" if self._groups[group].reuse == "last" else item.retention
