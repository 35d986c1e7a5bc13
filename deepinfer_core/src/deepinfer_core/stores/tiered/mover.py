"""How do blocks come into a tier while nobody waits for it?

What was stored in a faster tier is written back, what was read from a slower one is promoted. Both
wait in a queue that knows keys alone: bytes are read where they are when it is their turn, so that
waiting takes no memory, and a block that has gone meanwhile is not moved. Blocks of a chain are
moved in its order, one behind the other: whatever ends the process, the tier has the beginnings of
texts. What cannot be kept is given up at once, with what is behind it in its chain: the next pieces
of a chain come with later calls, and are known by the depth at which they go on.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from deepinfer_core.interfaces.kv_store import BlockGroup, KvStore, StoreItem
from deepinfer_core.interfaces.kv_upkeep import BlockFacts, Upkeep
from deepinfer_core.stores.calls import seconds_until

__all__ = ["Mover"]

_STEP_S = 30.0
"""For moving as many blocks as the tier takes at once."""

_MOST_BROKEN = 4096
"""Chains that are remembered for having lost a piece; older ones are forgotten."""

_Place = tuple[str, bytes, int]
"""Group, namespace and depth at which a chain goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Move:
    """Blocks of one group, in order of their chain.

    Attributes:
        group: theirs.
        keys: theirs.
        facts: of blocks that are written back; empty: they are promoted, and described by where
            they come from.
        sources: where they may be, the fastest first.
    """

    group: BlockGroup
    keys: tuple[bytes, ...]
    facts: tuple[BlockFacts, ...]
    sources: tuple[KvStore, ...]

    @property
    def size_bytes(self) -> int:
        """Of its blocks."""
        return len(self.keys) * self.group.block_bytes


class Mover:
    """Fills one tier, in a thread of its own.

    Args:
        target: the tier; open.
        pending_bytes: of blocks that may wait.
    """

    def __init__(self, target: KvStore, pending_bytes: int) -> None:
        self._target, self._most_bytes = target, pending_bytes
        self._changed = threading.Condition()
        self._written: deque[_Move] = deque()
        self._promoted: deque[_Move] = deque()
        self._moving: _Move | None = None
        self._pending_bytes, self._pauses, self._is_closing = 0, 0, False
        self._problem = ""
        self._broken: OrderedDict[_Place, None] = OrderedDict()
        self._counts: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run, name="kv-mover", daemon=True)
        self._thread.start()

    def write_back(
        self, group: BlockGroup, facts: Sequence[BlockFacts], sources: Sequence[KvStore]
    ) -> None:
        """Have blocks written that were stored in faster tiers.

        What does not fit into the queue is not written: the end of the newest text.
        """
        with self._changed:
            room = max(self._most_bytes - self._pending_bytes, 0) // group.block_bytes
            taken = facts[:room]
            if len(taken) < len(facts):
                self._give_up(group, facts[len(taken) :])
            if taken and not self._is_closing:
                keys = tuple(one.key for one in taken)
                move = _Move(group=group, keys=keys, facts=tuple(taken), sources=tuple(sources))
                self._written.append(move)
                self._pending_bytes += move.size_bytes
                self._changed.notify_all()

    def promote(self, group: BlockGroup, keys: Sequence[bytes], source: KvStore) -> None:
        """Have blocks copied that were read from a slower tier; forgotten if much is waiting."""
        move = _Move(group=group, keys=tuple(keys), facts=(), sources=(source,))
        with self._changed:
            if self._is_closing or self._pending_bytes + move.size_bytes > self._most_bytes // 2:
                self._counts["not_promoted"] += len(keys)
                return
            self._promoted.append(move)
            self._pending_bytes += move.size_bytes
            self._changed.notify_all()

    def settle(self, deadline_s: float) -> bool:
        """Wait until nothing is waiting; whether that came to be."""
        with self._changed:
            return self._changed.wait_for(self._is_idle, seconds_until(deadline_s))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Move nothing within the context, so that what goes from its sources is gone."""
        with self._changed:
            self._pauses += 1
            self._changed.wait_for(lambda: self._moving is None)
        try:
            yield
        finally:
            with self._changed:
                self._pauses -= 1
                self._changed.notify_all()

    def close(self, deadline_s: float) -> None:
        """Move what is waiting, for as long as there is time."""
        self.settle(deadline_s)
        with self._changed:
            self._is_closing = True
            self._counts["not_written_back"] += sum(len(move.keys) for move in self._written)
            self._counts["not_promoted"] += sum(len(move.keys) for move in self._promoted)
            self._changed.notify_all()
        self._thread.join(seconds_until(deadline_s))

    def counts(self) -> Mapping[str, int]:
        """Blocks moved so far, and not moved."""
        with self._changed:
            return dict(self._counts)

    @property
    def problem(self) -> str:
        """What went wrong last that no store should do; empty: nothing."""
        with self._changed:
            return self._problem

    def _is_idle(self) -> bool:
        return not (self._written or self._promoted or self._moving)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: (
                        self._is_closing or (not self._pauses and (self._written or self._promoted))
                    )
                )
                if self._is_closing:
                    return
                move = (self._written or self._promoted).popleft()
                self._moving = move
            try:
                self._carry(move)
            except Exception as error:  # noqa: BLE001 - stores may be anybody's
                with self._changed:
                    self._problem = f"{type(error).__name__} while blocks were moved"
                    self._give_up(move.group, move.facts)
            finally:
                with self._changed:
                    self._pending_bytes -= move.size_bytes
                    self._moving = None
                    self._changed.notify_all()

    def _carry(self, move: _Move) -> None:
        """Move blocks, some at a time, up to the first that the tier does not keep."""
        facts = move.facts or self._described(move)
        with self._changed:
            if move.facts and _place(move.group, facts[0]) in self._broken:
                self._give_up(move.group, facts)
                return
        at_once = max(self._target.capabilities.batch_blocks, 1)
        for start in range(0, len(facts), at_once):
            some = facts[start : start + at_once]
            moved, kept = self._copy(move, some)
            with self._changed:
                self._counts["written_back" if move.facts else "promoted"] += moved
                if kept < len(some):
                    if move.facts:
                        self._give_up(move.group, facts[start + kept :])
                    else:
                        self._counts["not_promoted"] += len(facts) - start - kept
                    return
        if move.facts:
            with self._changed:
                self._broken.pop(_place(move.group, facts[-1], behind=1), None)

    def _described(self, move: _Move) -> Sequence[BlockFacts]:
        (source,) = move.sources
        if not isinstance(source, Upkeep):
            return ()
        found = source.describe(move.group.name, move.keys, deadline_s=_soon())
        return [one for one in found if one is not None]

    def _copy(self, move: _Move, some: Sequence[BlockFacts]) -> tuple[int, int]:
        """Blocks that were copied, and leading ones that the tier has now."""
        group = move.group
        keys = [one.key for one in some]
        there = [
            one.status == "hit" for one in self._target.find(group.name, keys, deadline_s=_soon())
        ]
        missing = [one for one, is_there in zip(some, there, strict=True) if not is_there]
        if move.facts:
            self._note_uses(group, [one for one in some if one not in missing])
        copied = self._copy_missing(group, missing, move.sources)
        if copied == len(missing):
            return copied, len(some)
        return copied, keys.index(missing[copied].key)

    def _note_uses(self, group: BlockGroup, facts: Sequence[BlockFacts]) -> None:
        """Who stores what is there uses it, under a class that may keep it longer."""
        for retention in {one.retention for one in facts}:
            keys = [one.key for one in facts if one.retention == retention]
            self._target.touch(group.name, keys, retention=retention)

    def _copy_missing(
        self, group: BlockGroup, missing: Sequence[BlockFacts], sources: Sequence[KvStore]
    ) -> int:
        """Copy blocks from where they are; leading ones that were kept."""
        done = 0
        for source in sources:
            rest = missing[done:]
            if not rest:
                break
            keys = [one.key for one in rest]
            with source.borrow(group.name, keys, deadline_s=_soon()) as lent:
                items = [
                    StoreItem(
                        key=one.key,
                        data=found.data,
                        namespace=one.namespace,
                        depth=one.depth,
                        retention=one.retention,
                    )
                    for one, found in zip(rest, lent, strict=True)
                    if found.data is not None
                ]
                in_a_row = (item.key == key for item, key in zip(items, keys, strict=False))
                items = items[: _leading(in_a_row)]
                outcomes = self._target.store(group.name, items, deadline_s=_soon())
                done += _leading(one.status in ("stored", "exists") for one in outcomes)
        return done

    def _give_up(self, group: BlockGroup, facts: Sequence[BlockFacts]) -> None:
        """Count blocks that the tier does not get, and know their chain when it goes on."""
        if not facts:
            return
        self._counts["not_written_back"] += len(facts)
        self._broken[_place(group, facts[-1], behind=1)] = None
        if len(self._broken) > _MOST_BROKEN:
            self._broken.popitem(last=False)


def _place(group: BlockGroup, facts: BlockFacts, behind: int = 0) -> _Place:
    return group.name, facts.namespace, facts.depth + behind


def _leading(kept: Iterable[bool]) -> int:
    """How many are true in front of the first that is not."""
    count = 0
    for one in kept:
        if not one:
            break
        count += 1
    return count


def _soon() -> float:
    return time.monotonic() + _STEP_S
