"""How is a batch of finished blocks stored: none twice, and none whose chain has a hole before it?

The store is asked for all blocks of the batch, and for those before it that begin a run, in one
call. A block without the one before it would be found by nobody until the hole is filled, and
would let a search believe that more of the chain is there than is. Where a failure, a restart or a
queue that was full left a hole, what follows is therefore not stored, whatever call it comes in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from deepinfer_core.interfaces.kv_store import BlockGroup, StoreItem
from deepinfer_core.stores.fetcher.endpoint import Endpoint
from deepinfer_core.stores.fetcher.messages import KeepItem
from deepinfer_core.stores.fetcher.refusals import Refusals
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
        self._refusals = Refusals()

    def store(self, batch: Batch) -> list[str]:
        """Store a batch.

        Returns:
            The outcome of each block: ``stored``, ``exists``, ``timeout``, ``full``,
            ``unavailable`` or ``orphan``.
        """
        by_s = math.inf  # no prefix waits; it has the time that every call has
        keys = [one.item.key for one in batch.blocks]
        before = {one.item.parent for one in batch.blocks}.difference(keys, (b"",))
        asked = [*before, *keys]
        found = self._endpoint.check(batch.group, asked, by_s)
        answers = [one.status for one in found]
        there = answers[len(before) :]
        if failures := [one for one in found if one.status not in ("hit", "miss")]:
            failure = "timeout" if "timeout" in answers else "unavailable"
            self._refusals.note(failure, failures[0].reason, len(there))
            return [failure] * len(there)
        whole = {b"", *(key for key, one in zip(asked, answers, strict=True) if one == "hit")}
        outcomes = ["exists"] * len(there)
        missing = []
        for at, (block, status) in enumerate(zip(batch.blocks, there, strict=True)):
            if status == "miss" and block.item.parent in whole:
                whole.add(block.item.key)
                missing.append(at)
            elif status == "miss":
                outcomes[at] = "orphan"
        items = [self._item(batch.group, batch.blocks[at].item) for at in missing]
        kept = self._endpoint.keep(batch.group, items, by_s) if items else []
        for at, outcome in zip(missing, kept, strict=True):
            outcomes[at] = "full" if outcome.is_full else outcome.status
        refused = [one for one in kept if one.status not in ("stored", "exists")]
        if refused:
            word = "full" if refused[0].is_full else refused[0].status
            self._refusals.note(word, refused[0].reason, len(refused))
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
