"""What does a store do that keeps pieces of blocks in many others, any k of which are enough?

Reed-Solomon code: a block is k pieces of data, and m more are computed, one for each child store.
Reading asks k + 1 children and takes the k that answer first; writing needs k + 1 to keep theirs.
So m children may be lost, slow, hung or wrong, and nobody notices but the report.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deepinfer_core.errors import EngineError
from deepinfer_core.interfaces.kv_store import (
    BlockGroup,
    KvStore,
    Outcome,
    StoreCapabilities,
    StoreItem,
    StoreReport,
)
from deepinfer_core.interfaces.kv_upkeep import BlockFacts
from deepinfer_core.stores.calls import CLOSED, Tally, is_late
from deepinfer_core.stores.closing import close_all
from deepinfer_core.stores.erasure.child import Child, ChildFailed
from deepinfer_core.stores.erasure.codec import Codec
from deepinfer_core.stores.erasure.crowd import ask_all, merged_report, numbers, ranked
from deepinfer_core.stores.erasure.fragments import (
    FRAGMENT_HEADER_BYTES,
    Shape,
    fragment_groups,
)
from deepinfer_core.stores.erasure.gathering import Patience
from deepinfer_core.stores.erasure.means import Means
from deepinfer_core.stores.erasure.opening import open_children
from deepinfer_core.stores.erasure.placing import Placing
from deepinfer_core.stores.erasure.reader import BlockReader
from deepinfer_core.stores.erasure.repairs import RepairQueue
from deepinfer_core.stores.erasure.sweeping import Sweeps
from deepinfer_core.stores.erasure.writer import BlockWriter
from deepinfer_core.stores.guarded import GuardedStore
from deepinfer_core.stores.late_uses import LateUses

__all__ = ["ErasureStore"]

_DROP_S = 600.0
"""For which a child may take to drop blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """What there is only while the store is open."""

    groups: Mapping[str, BlockGroup]
    means: Means
    reader: BlockReader
    writer: BlockWriter
    sweeps: Sweeps


class ErasureStore(GuardedStore[_Opened]):
    """Pieces of blocks in many stores.

    Args:
        stores: the children, k + m of them, by their titles; none of them open.
        codec: computes pieces.
        patience: how long children are waited for.
        repair_bytes_per_s: that repairs may read and write.
        scrub_bytes_per_s: that is read to find damage that nobody has met; 0: nothing.
        spare: children that a read asks at first beyond the k that it needs, up to m.

    Raises:
        ValueError: another number of stores.
    """

    def __init__(
        self,
        stores: Sequence[tuple[str, KvStore]],
        codec: Codec,
        *,
        patience: Patience | None = None,
        repair_bytes_per_s: float = 64e6,
        scrub_bytes_per_s: float = 16e6,
        spare: int = 1,
    ) -> None:
        super().__init__(None)
        if len(stores) != codec.data + codec.parity:
            raise ValueError(f"{codec.data} + {codec.parity} pieces, found {len(stores)} stores")
        self._stores, self._codec = tuple(stores), codec
        self._patience = patience or Patience()
        self._repair_rate, self._scrub_rate = repair_bytes_per_s, scrub_bytes_per_s
        self._spare = spare

    @property
    def capabilities(self) -> StoreCapabilities:
        """As persistent as all children are."""
        all_of = [store.capabilities for _, store in self._stores]
        longest = min(one.max_block_bytes for one in all_of) - FRAGMENT_HEADER_BYTES
        return StoreCapabilities(
            is_persistent=all(one.is_persistent for one in all_of),
            is_zero_copy=False,
            batch_blocks=max(one.batch_blocks for one in all_of),
            max_block_bytes=max(longest, 0) * self._codec.data,
            is_remote=any(one.is_remote for one in all_of),
        )

    def drop(self, namespace: bytes | None = None) -> int:
        """Remove all blocks of a namespace, or all, from every child."""
        opened = self._opened
        if opened is None:
            return 0
        found = ask_all(
            opened.means.children,
            "drop",
            1,
            lambda child: child.store.drop(namespace),
            time.monotonic() + _DROP_S,
        )
        problems = [
            f"{child.title}: {_why(found.get(number))}"
            for number, child in enumerate(opened.means.children)
            if not isinstance(found.get(number), int)
        ]
        if problems:
            raise EngineError(
                f"asked to drop blocks, found children that did not: {'; '.join(problems)}",
                hint="drop them again once all children can be written to",
            )
        return ranked(numbers(found), self._codec.parity)

    def report(self) -> StoreReport:
        """What there is to tell."""
        opened = self._opened
        if opened is None:
            return StoreReport(outcomes=self._tally.outcomes(), problem=CLOSED.reason)
        means = opened.means
        work = {**means.counts.by_name(), "waiting_for_repair": len(means.queue)}
        return merged_report(
            means.children,
            opened.groups,
            self._codec.data,
            self._tally,
            work,
            opened.sweeps.departures.alone,
        )

    def _start(self, groups: Sequence[BlockGroup], tally: Tally) -> _Opened:
        codec = self._codec
        shapes = {
            group.name: Shape(group=group, data=codec.data, parity=codec.parity) for group in groups
        }
        refused = open_children(self._stores, fragment_groups(shapes), codec.parity)
        children = tuple(
            Child(title, store, self._patience.most_s, refused.get(title, ""))
            for title, store in self._stores
        )
        means = Means(
            children=children,
            shapes=shapes,
            codec=codec,
            patience=self._patience,
            placing=Placing(children, codec.data),
            asked=codec.data + self._spare,
            late_uses=tuple(LateUses() for _ in children),
            queue=RepairQueue(),
        )
        return _Opened(
            groups={group.name: group for group in groups},
            means=means,
            reader=BlockReader(means),
            writer=BlockWriter(means),
            sweeps=Sweeps(means, tally, self._repair_rate, self._scrub_rate),
        )

    def _stop(self, opened: _Opened) -> None:
        """Wait for children as long as for their answers."""
        for child in opened.means.children:
            child.close()
        close_all([child.store for child in opened.means.children], self._patience.soon())

    def _find(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], deadline_s: float
    ) -> list[Outcome]:
        return opened.reader.find(group.name, keys, deadline_s)

    def _load(
        self,
        opened: _Opened,
        group: BlockGroup,
        keys: Sequence[bytes],
        destinations: Sequence[bytearray | memoryview],
        deadline_s: float,
        *,
        is_use: bool,
    ) -> list[Outcome]:
        return opened.reader.load(group.name, keys, destinations, deadline_s, is_use=is_use)

    def _store(
        self, opened: _Opened, group: BlockGroup, items: Sequence[StoreItem], deadline_s: float
    ) -> list[Outcome]:
        return opened.writer.store(group.name, items, deadline_s)

    def _touch(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], retention: str
    ) -> None:
        ask_all(
            opened.means.children,
            "touch",
            len(keys),
            lambda child: child.store.touch(group.name, keys, retention=retention),
            self._patience.soon(),
        )

    def _describe(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], deadline_s: float
    ) -> list[BlockFacts | None]:
        """By those of its fragments, if there are enough of them."""
        found = ask_all(
            opened.means.children,
            "describe",
            len(keys),
            lambda child: child.describe(group.name, keys, deadline_s),
            min(deadline_s, self._patience.soon()),
        )
        pages = [page for page in found.values() if isinstance(page, list)]
        described: list[BlockFacts | None] = []
        for place in range(len(keys)):
            having = [one for page in pages if (one := page[place]) is not None]
            described.append(having[0] if len(having) >= self._codec.data else None)
        return described

    def _survey(
        self, opened: _Opened, group: BlockGroup, after: bytes, most: int, deadline_s: float
    ) -> list[BlockFacts]:
        """Blocks of which enough fragments are there."""
        while not is_late(deadline_s):
            found = ask_all(
                opened.means.children,
                "survey",
                most,
                lambda child, behind=after: child.survey(group.name, behind, most, deadline_s),  # type: ignore[misc]
                min(deadline_s, self._patience.soon()),
            )
            pages = [page for page in found.values() if isinstance(page, list)]
            last = min((page[-1].key for page in pages if len(page) == most), default=b"")
            seen = Counter(one.key for page in pages for one in page)
            facts = {one.key: one for page in pages for one in page}
            whole = [
                facts[key]
                for key in sorted(seen)
                if seen[key] >= self._codec.data and (not last or key <= last)
            ]
            if whole or not last:
                return whole[:most]
            after = last
        return []

    def _discard(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], deadline_s: float
    ) -> int:
        found = ask_all(
            opened.means.children,
            "discard",
            len(keys),
            lambda child: child.discard(group.name, keys, deadline_s),
            min(deadline_s, self._patience.soon()),
        )
        removed = ranked(numbers(found), self._codec.parity)
        self._tally.remove("discarded", removed)
        return removed

    def _sweep(self, opened: _Opened, deadline_s: float) -> int:
        """Let children sweep and blocks go as a whole, then make up for what is missing."""
        return opened.sweeps.sweep(deadline_s)


def _why(answer: int | ChildFailed | None) -> str:
    if isinstance(answer, ChildFailed):
        return getattr(answer.__cause__, "message", str(answer))
    return "it does not answer"
