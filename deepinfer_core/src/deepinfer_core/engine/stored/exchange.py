"""What does an engine tell the parts that fetch and store, and what do they tell it?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from deepinfer_core.cache.prefix import PrefixCache
from deepinfer_core.engine.page_memory import PageMemory
from deepinfer_core.engine.prefix_reuse import ReusePolicy
from deepinfer_core.engine.ranked_queue import RankedQueue
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.engine.stored.counts import StoreCounts
from deepinfer_core.engine.stored.fetch import Taken
from deepinfer_core.engine.stored.fetching import Fetching
from deepinfer_core.engine.stored.limits import StoreLimits
from deepinfer_core.engine.stored.pace import Pace
from deepinfer_core.engine.stored.write_back import WriteBack
from deepinfer_core.interfaces.kv_store import BlockGroup
from deepinfer_core.schedule.shortage import owed_blocks
from deepinfer_core.schedule.snapshot import Limits
from deepinfer_core.stores.traffic import BlockTraffic, TrafficCounts
from deepinfer_core.telemetry.logs import get_logger

__all__ = ["Exchange"]

_WAIT_S = 0.005
"""Longest wait of an idle step for a store; whoever arrives meanwhile waits as long."""

_COUNTED_EVERY_S = 0.25
"""The fetcher's counts are looked at so often."""

_LAST_WORDS_S = 2.0
"""How long closing waits for what is still to be handed over."""


class Exchange:
    """One engine's side of its store; used by the engine's thread alone.

    Args:
        traffic: the way to the store.
        memory: the engine's pages.
        policy: what is reused.
        limits: what it may take.
        clock_s: monotonic clock.

    Attributes:
        counts: what happened.
    """

    def __init__(
        self,
        traffic: BlockTraffic,
        memory: PageMemory,
        policy: ReusePolicy,
        limits: StoreLimits,
        *,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts = StoreCounts()
        self._traffic = traffic
        self._memory = memory
        self._clock_s = clock_s
        self._pace = Pace()
        self._counted_s = clock_s()
        self._problems: dict[str, str] = {}
        groups = _group_names(traffic)
        self._writing = WriteBack(traffic, groups, memory, limits, self.counts, clock_s)
        self._fetching = Fetching(
            traffic, groups, memory, policy, limits, self._pace, self.counts, clock_s,
            self._writing.reach, self._writing.came, self._writing.ended,
        )  # fmt: skip

    @property
    def groups(self) -> Mapping[str, BlockGroup]:
        """What it exchanges, by name."""
        return self._traffic.groups

    def start(self, cache: PrefixCache) -> None:
        """Begin over an empty cache, whatever was under way; the device is idle."""
        self._fetching.start(cache)
        self._writing.start(cache)

    def tend(self, waiting: Iterable[Sequence], running: RankedQueue, limits: Limits) -> None:
        """Do what is to be done between two steps; never waits.

        Args:
            waiting: sequences in order of rank.
            running: sequences.
            limits: of the engine.
        """
        # With fewer blocks free, steps might take those that come for running sequences.
        reserve_blocks = len(running) + 1 + limits.max_rows // limits.block_tokens
        views = (one.view() for one in running)
        self._fetching.tend(waiting, reserve_blocks, lambda: owed_blocks(limits, views))
        self._writing.tend()
        now_s = self._clock_s()
        if now_s - self._counted_s >= _COUNTED_EVERY_S:
            self._counted_s = now_s
            self._count()

    def wait(self) -> bool:
        """Whether some sequence waits for the store; if so, wait a little for it."""
        return self._fetching.wait(_WAIT_S)

    @property
    def is_busy(self) -> bool:
        """Whether there is something to tend to though no sequence is in work."""
        return self._writing.is_busy or self._fetching.is_busy

    def linger(self) -> None:
        """Wait a little for what is to be tended to."""
        self._traffic.wait(_WAIT_S)

    def saw(self, prompt_rows: int, decode_rows: int, elapsed_s: float) -> None:
        """A step has ended; see ``Pace``."""
        self._pace.saw(prompt_rows, decode_rows, elapsed_s)

    def admitted(self, sequence: Sequence, blocks: int) -> Taken:
        """A sequence has taken over so many cached blocks; what of them came for it."""
        found = self._fetching.admitted(sequence, blocks)
        self._writing.offer(sequence)
        return found

    def published(self, sequence: Sequence) -> None:
        """More blocks of a sequence are published."""
        self._writing.offer(sequence)

    def kept_state(self, sequence: Sequence, tokens: int) -> None:
        """The state behind so many tokens was published."""
        self._writing.offer_state(sequence, tokens)

    def leave(self, sequence: Sequence) -> None:
        """A sequence is gone, and is about to give its blocks back."""
        self._fetching.leave(sequence)
        self._writing.leave(sequence)

    def make_room(self) -> None:
        """Let go of all blocks that no sequence computes with."""
        self._fetching.make_room()
        self._writing.make_room()

    def held_blocks(self) -> list[tuple[int, ...]]:
        """Blocks that it holds."""
        return [*self._fetching.held_blocks(), *self._writing.held_blocks()]

    def reserved_slots(self) -> set[int]:
        """State slots that are set apart for states that come."""
        return self._fetching.reserved_slots()

    def flush(self) -> None:
        """Hand over what waits, for a moment; nothing runs."""
        end_s = self._clock_s() + _LAST_WORDS_S
        while self._writing.is_busy and self._clock_s() < end_s:
            self._writing.tend()
            if self._writing.is_busy:
                self.linger()

    def close(self) -> None:
        """End the fetcher; nothing is under way. May be called again."""
        self._memory.close()
        self._traffic.close()
        self.counts.traffic = self._traffic.counts()

    def figures(self) -> StoreCounts:
        """What happened up to now, also of an engine that stands still; from any thread."""
        now = self._traffic.counts()
        self._note_standing(now)
        return replace(self.counts, traffic=now)

    def _note_standing(self, now: TrafficCounts) -> None:
        if not now.problem:
            self.counts.unusable_since_s = None
        elif self.counts.unusable_since_s is None:
            self.counts.unusable_since_s = self._clock_s()

    def _count(self) -> None:
        before, now = self.counts.traffic, self._traffic.counts()
        self.counts.traffic = now
        self._note_standing(now)
        if now.restarts != before.restarts:
            self._writing.forget_all()
        if now.problem and not before.problem:
            get_logger(__name__).warning("kv_store.unusable", reason=now.problem)
        elif before.problem and not now.problem:
            get_logger(__name__).info("kv_store.usable")
        for name, report in now.stores.items():
            known, self._problems[name] = self._problems.get(name, ""), report.problem
            if report.problem and report.problem != known:
                get_logger(__name__).warning("kv_store.problem", of=name, reason=report.problem)
            elif known and not report.problem:
                get_logger(__name__).info("kv_store.problem_gone", of=name)


def _group_names(traffic: BlockTraffic) -> tuple[str, str | None]:
    """Of blocks, and of states where they are carried."""
    names = {group.reuse: name for name, group in traffic.groups.items()}
    return names["leading"], names.get("last")
