"""Which finished blocks are to be stored, and what becomes of those behind one that was not?

As many wait as there are slots for them, and none for longer than a while. A block that is not
stored takes those behind it in its run along, so that a chain has no holes. Pure.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deepinfer_core.stores.fetcher.messages import KeepItem, WriteOutcome, Written

__all__ = ["Batch", "Waiting", "WriteQueue"]


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """A block to be stored.

    Attributes:
        item: what the engine said of it.
        run: blocks of one run follow on each other in a chain.
        since_s: when it came.
    """

    item: KeepItem
    run: int
    since_s: float


@dataclass(frozen=True, slots=True)
class Batch:
    """Blocks of one group to be stored in one call."""

    group: str
    blocks: tuple[Waiting, ...]


class WriteQueue:
    """Blocks in the order in which they came.

    Args:
        age_s: a block that has waited for so long is dropped.
        batch_blocks: in a call of the store.
        tell: sends a message to the engine.
    """

    def __init__(self, *, age_s: float, batch_blocks: int, tell: Callable[[Written], None]) -> None:
        self._age_s, self._batch_blocks, self._tell = age_s, batch_blocks, tell
        self._waiting: deque[tuple[str, Waiting]] = deque()
        self._runs = 0
        self._in_work = 0

    def __len__(self) -> int:
        return len(self._waiting) + self._in_work

    def put(self, group: str, items: Sequence[KeepItem], now_s: float) -> None:
        """Blocks that an engine handed over."""
        before = b""
        for item in items:
            if not before or item.parent != before:
                self._runs += 1
            self._waiting.append((group, Waiting(item, self._runs, now_s)))
            before = item.key

    def take(self) -> Batch | None:
        """The next blocks to store; None: there are none."""
        if not self._waiting:
            return None
        group = self._waiting[0][0]
        blocks: list[Waiting] = []
        while self._waiting and self._waiting[0][0] == group and len(blocks) < self._batch_blocks:
            blocks.append(self._waiting.popleft()[1])
        self._in_work += len(blocks)
        return Batch(group, tuple(blocks))

    def done(self, batch: Batch, outcomes: Sequence[str]) -> None:
        """What became of a batch; blocks that a failure of another run kept back wait again.

        One that lacked the block before it (``orphan``) kept nobody back but its own run.
        """
        self._in_work -= len(batch.blocks)
        counts: Counter[WriteOutcome] = Counter()
        numbers: list[int] = []
        failed: dict[int, WriteOutcome] = {}
        stopped_run, again = -1, []
        for block, status in zip(batch.blocks, outcomes, strict=True):
            if stopped_run not in (-1, block.run):
                again.append((batch.group, block))
                continue
            outcome = _outcome(status)
            counts[outcome] += 1
            numbers.append(block.item.number)
            if outcome not in ("stored", "exists"):
                failed.setdefault(block.run, outcome)
                stopped_run = stopped_run if outcome == "orphan" else block.run
        self._waiting.extendleft(reversed(again))
        for run, outcome in failed.items():
            self._drop_run(run, outcome)
        self._release(batch.group, numbers, counts)

    def expire(self, now_s: float) -> None:
        """Drop what has waited for too long."""
        if self._waiting and now_s - self._waiting[0][1].since_s >= self._age_s:
            self._drop(lambda one: now_s - one.since_s >= self._age_s, "timeout")

    def _drop_run(self, run: int, outcome: WriteOutcome) -> None:
        self._drop(lambda one: one.run == run, outcome)

    def _drop(self, goes: Callable[[Waiting], bool], outcome: WriteOutcome) -> None:
        numbers: dict[str, list[int]] = {}
        kept: deque[tuple[str, Waiting]] = deque()
        for group, one in self._waiting:
            if goes(one):
                numbers.setdefault(group, []).append(one.item.number)
            else:
                kept.append((group, one))
        self._waiting = kept
        for group, gone in numbers.items():
            self._release(group, gone, Counter({outcome: len(gone)}))

    def _release(self, group: str, numbers: list[int], outcomes: Counter[WriteOutcome]) -> None:
        if numbers:
            self._tell(Written(group, numbers, dict(outcomes)))


def _outcome(status: str) -> WriteOutcome:
    if status in ("stored", "exists", "timeout", "full", "orphan"):
        return status  # type: ignore[return-value]
    return "unavailable"
