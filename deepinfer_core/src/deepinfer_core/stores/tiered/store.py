"""What does a store do that consists of others, the fast and small in front of the slow and large?

A block is looked for from the first tier on, and comes from the first that has it whole. It is
stored in the first tier that takes it, and moved into the others behind everybody's back
(``Mover``). A tier that cannot be used is passed over. States, of which only the last counts, never
go to a tier that outlives the process: they serve for minutes, and would be most of what is
written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from deepinfer_core.errors import EngineError
from deepinfer_core.interfaces.kv_store import (
    BlockGroup,
    Outcome,
    StoreCapabilities,
    StoreItem,
    StoreReport,
)
from deepinfer_core.interfaces.kv_upkeep import BlockFacts, Departed, Upkeep
from deepinfer_core.stores.calls import CLOSED, LATE, MISS, Tally, is_late
from deepinfer_core.stores.closing import close_all
from deepinfer_core.stores.guarded import GuardedStore
from deepinfer_core.stores.tiered.reports import merged_report, worst
from deepinfer_core.stores.tiered.tiers import OpenTier, Tier, open_tiers

__all__ = ["TieredStore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """What there is only while the store is open."""

    groups: Mapping[str, BlockGroup]
    tiers: tuple[OpenTier, ...]

    def of(self, group: BlockGroup) -> tuple[OpenTier, ...]:
        """Tiers of a group, the fastest first."""
        return tuple(tier for tier in self.tiers if group.name in tier.store.groups)


class TieredStore(GuardedStore[_Opened]):
    """Stores in front of each other.

    Args:
        tiers: the fastest one first.
        pending_bytes: of blocks that wait to be moved into one tier; more are not.
        close_s: how long closing waits for them.
    """

    def __init__(
        self, tiers: Sequence[Tier], *, pending_bytes: int = 1 << 30, close_s: float = 10.0
    ) -> None:
        super().__init__(None)
        self._tiers, self._pending_bytes, self._close_s = tuple(tiers), pending_bytes, close_s

    @property
    def capabilities(self) -> StoreCapabilities:
        """Persistent if all of it is: a state in memory is not."""
        all_of = [tier.store.capabilities for tier in self._tiers]
        return StoreCapabilities(
            is_persistent=all(one.is_persistent for one in all_of),
            is_zero_copy=False,
            batch_blocks=max(one.batch_blocks for one in all_of),
            max_block_bytes=min(one.max_block_bytes for one in all_of),
            is_remote=any(one.is_remote for one in all_of),
        )

    def settle(self, deadline_s: float) -> bool:
        """Wait until all blocks are where they are to be moved; whether that came to be."""
        opened = self._opened
        return opened is None or all(tier.mover.settle(deadline_s) for tier in opened.tiers)

    def drop(self, namespace: bytes | None = None) -> int:
        """Remove all blocks of a namespace, or all, in every tier; also those on their way."""
        opened = self._opened
        if opened is None:
            return 0
        removed, problems = [0], []
        with ExitStack() as stack:
            for tier in opened.tiers:
                stack.enter_context(tier.mover.paused())
            for tier in opened.tiers:
                try:
                    removed.append(tier.store.drop(namespace))
                except EngineError as error:
                    problems.append(f"{tier.title}: {error.message}")
        if problems:
            raise EngineError(
                f"asked to drop blocks, found tiers that did not: {'; '.join(problems)}",
                hint="drop them again once all tiers can be written to",
            )
        return max(removed)

    def report(self) -> StoreReport:
        """What there is to tell, by the last tier where tiers differ."""
        opened = self._opened
        if opened is None:
            return StoreReport(outcomes=self._tally.outcomes(), problem=CLOSED.reason)
        return merged_report(opened.tiers, self._tally.outcomes())

    def departed(self) -> list[Departed]:
        """What the last tier of its group has let go."""
        opened = self._opened
        if opened is None:
            return []
        return [
            one
            for tier in opened.tiers
            if isinstance(tier.store, Upkeep)
            for one in tier.store.departed()
            if tier is opened.of(opened.groups[one.group])[-1]
        ]

    def _start(self, groups: Sequence[BlockGroup], tally: Tally) -> _Opened:
        return _Opened(
            groups={group.name: group for group in groups},
            tiers=open_tiers(self._tiers, groups, self._pending_bytes),
        )

    def _stop(self, opened: _Opened) -> None:
        """Move what waits, while there is time."""
        deadline_s = time.monotonic() + self._close_s
        for tier in opened.tiers:
            tier.mover.close(deadline_s)
        # A store that works closes in no time; only a hung one meets the deadline.
        close_all([tier.store for tier in opened.tiers], time.monotonic() + self._close_s)

    def _find(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], deadline_s: float
    ) -> list[Outcome]:
        def ask(tier: OpenTier, places: Sequence[int]) -> list[Outcome]:
            some = [keys[place] for place in places]
            return tier.store.find(group.name, some, deadline_s=deadline_s)

        return self._tier_by_tier(opened, group, len(keys), ask, deadline_s)

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
        """What is only looked at is promoted nowhere."""
        faster: list[OpenTier] = []

        def ask(tier: OpenTier, places: Sequence[int]) -> list[Outcome]:
            some = [keys[place] for place in places]
            into = [destinations[place] for place in places]
            if not is_use and isinstance(tier.store, Upkeep):
                return tier.store.peek(group.name, some, into, deadline_s=deadline_s)
            outcomes = tier.given.count(
                tier.store.load(group.name, some, into, deadline_s=deadline_s)
            )
            hits = [key for key, one in zip(some, outcomes, strict=True) if one.status == "hit"]
            if hits:
                for other in faster:
                    other.mover.promote(group, hits, tier.store)
                for other in opened.of(group)[len(faster) + 1 :]:
                    other.late_uses.note(group.name, hits)
            faster.append(tier)
            return outcomes

        return self._tier_by_tier(opened, group, len(keys), ask, deadline_s)

    def _store(
        self, opened: _Opened, group: BlockGroup, items: Sequence[StoreItem], deadline_s: float
    ) -> list[Outcome]:
        """In the first tier that takes it; what a full one refuses goes to the next."""
        outcomes: list[Outcome] = []
        tiers = opened.of(group)
        failure = LATE
        for number, tier in enumerate(tiers):
            rest = items[len(outcomes) :]
            # What was in front of it in its chain may still be on its way to this tier.
            if is_late(deadline_s) or (number and not tier.mover.settle(deadline_s)):
                return outcomes + [LATE] * len(rest)
            done = tier.given.count(tier.store.store(group.name, rest, deadline_s=deadline_s))
            kept = list(_until_refused(done))
            outcomes += kept
            facts = [_facts(group, item) for item in rest[: len(kept)]]
            sources = [one.store for one in tiers[: number + 1]][::-1]
            for slower in tiers[number + 1 :] if facts else ():
                slower.mover.write_back(group, facts, sources)
            if len(kept) == len(rest):
                return outcomes
            failure = done[len(kept)]
            if failure.status == "timeout":
                break
        return outcomes + [failure] * (len(items) - len(outcomes))

    def _touch(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], retention: str
    ) -> None:
        for tier in opened.of(group):
            tier.store.touch(group.name, keys, retention=retention)

    def _describe(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], deadline_s: float
    ) -> list[BlockFacts | None]:
        found: list[BlockFacts | None] = [None] * len(keys)
        for tier in opened.of(group):
            if isinstance(tier.store, Upkeep):
                described = tier.store.describe(group.name, keys, deadline_s=deadline_s)
                found = [old or new for old, new in zip(found, described, strict=True)]
        return found

    def _survey(
        self, opened: _Opened, group: BlockGroup, after: bytes, most: int, deadline_s: float
    ) -> list[BlockFacts]:
        found: dict[bytes, BlockFacts] = {}
        for tier in opened.of(group):
            if isinstance(tier.store, Upkeep):
                some = tier.store.survey(group.name, after=after, most=most, deadline_s=deadline_s)
                found |= {one.key: one for one in some}
        return [found[key] for key in sorted(found)][:most]

    def _discard(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], deadline_s: float
    ) -> int:
        removed = (
            tier.store.discard(group.name, keys, deadline_s=deadline_s)
            for tier in opened.of(group)
            if isinstance(tier.store, Upkeep)
        )
        return max(removed, default=0)

    def _sweep(self, opened: _Opened, deadline_s: float) -> int:
        removed = []
        for tier in opened.tiers:
            for group, keys in tier.late_uses.take().items():
                tier.store.touch(group, keys)
            removed.append(tier.store.sweep(deadline_s=deadline_s))
        return max(removed)

    def _tier_by_tier(
        self,
        opened: _Opened,
        group: BlockGroup,
        count: int,
        ask: Callable[[OpenTier, Sequence[int]], list[Outcome]],
        deadline_s: float,
    ) -> list[Outcome]:
        """Ask each tier for what the faster ones have not got."""
        outcomes: list[Outcome] = [MISS] * count
        failed: list[list[Outcome]] = [[] for _ in range(count)]
        waiting = list(range(count))
        for tier in opened.of(group):
            if not waiting or (tier is not opened.of(group)[0] and is_late(deadline_s)):
                break
            for place, outcome in zip(waiting, ask(tier, waiting), strict=True):
                outcomes[place] = outcome
                if outcome.status != "hit":
                    failed[place].append(outcome)
            waiting = [place for place in waiting if outcomes[place].status != "hit"]
        for place in waiting:
            outcomes[place] = worst(failed[place])
        return outcomes


def _until_refused(outcomes: Sequence[Outcome]) -> Iterator[Outcome]:
    for one in outcomes:
        if one.status not in ("stored", "exists"):
            return
        yield one


def _facts(group: BlockGroup, item: StoreItem) -> BlockFacts:
    return BlockFacts(
        key=item.key,
        namespace=item.namespace,
        depth=item.depth,
        retention=item.retention or group.retention,
    )
