"""What if a store of blocks is dead, slow, hung, or hands out other bytes than it was given?

For tests of whatever stands in front of a store. Also where a test needs its hands on what a store
keeps: a bit of a record in memory or on a disk, and time that passes when it says so.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deepinfer_core.interfaces.kv_store import (
    BlockGroup,
    KvStore,
    Lent,
    Outcome,
    StoreCapabilities,
    StoreItem,
    StoreReport,
)
from deepinfer_core.interfaces.kv_upkeep import BlockFacts, Departed, Upkeep

if TYPE_CHECKING:  # a disk wants a package that not everybody has who tests stores
    from deepinfer_core.stores.disk.store import DiskStore
    from deepinfer_core.stores.memory import MemoryStore

__all__ = ["FaultyStore", "Passing", "flip_in_memory", "flip_on_disk"]

_DEAD = Outcome(status="unavailable", reason="dead")


class Passing:
    """A clock: time passes when a test says so."""

    def __init__(self) -> None:
        self.now_s = 1e6

    def __call__(self) -> float:
        """Seconds that only grow."""
        return self.now_s


class FaultyStore(KvStore, Upkeep):
    """A store in front of another, with faults as a test sets them.

    Attributes:
        inner: the other.
        is_dead: whether all is unavailable.
        gate: calls wait here; a test clears it to hang the store.
        gated: names of calls that wait; empty: all.
        delay_s: by which each call is late.
        spoil: what is done to bytes that are handed out.
        calls: of each kind, counted when they begin.
    """

    def __init__(self, inner: KvStore) -> None:
        self.inner, self.is_dead = inner, False
        self.gate = threading.Event()
        self.gate.set()
        self.gated: tuple[str, ...] = ()
        self.delay_s: Callable[[], float] = lambda: 0.0
        self.spoil: Callable[[bytearray | memoryview], None] | None = None
        self.calls: Counter[str] = Counter()

    @property
    def capabilities(self) -> StoreCapabilities:
        """Of the other."""
        return self.inner.capabilities

    @property
    def groups(self) -> Mapping[str, BlockGroup]:
        """Of the other."""
        return self.inner.groups

    def open(self, groups: Sequence[BlockGroup]) -> None:
        """Open the other."""
        self.inner.open(groups)

    def close(self) -> None:
        """Close the other; that hangs too."""
        if not self.gated or "close" in self.gated:
            self.gate.wait()
        self.inner.close()

    def find(self, group: str, keys: Sequence[bytes], *, deadline_s: float) -> list[Outcome]:
        """Look blocks up."""
        if self._fails("find"):
            return [_DEAD] * len(keys)
        return self.inner.find(group, keys, deadline_s=deadline_s)

    def load(
        self,
        group: str,
        keys: Sequence[bytes],
        destinations: Sequence[bytearray | memoryview],
        *,
        deadline_s: float,
    ) -> list[Outcome]:
        """Copy blocks out, and spoil them."""
        if self._fails("load"):
            return [_DEAD] * len(keys)
        outcomes = self.inner.load(group, keys, destinations, deadline_s=deadline_s)
        self._spoil_hits(destinations, outcomes)
        return outcomes

    @contextmanager
    def borrow(
        self, group: str, keys: Sequence[bytes], *, deadline_s: float
    ) -> Iterator[list[Lent]]:
        """Show blocks, or copies that are spoilt."""
        if self._fails("borrow"):
            yield [Lent(outcome=_DEAD)] * len(keys)
            return
        with self.inner.borrow(group, keys, deadline_s=deadline_s) as lent:
            yield [self._spoilt(one) for one in lent]

    def store(self, group: str, items: Sequence[StoreItem], *, deadline_s: float) -> list[Outcome]:
        """Keep copies of blocks."""
        if self._fails("store"):
            return [_DEAD] * len(items)
        return self.inner.store(group, items, deadline_s=deadline_s)

    def touch(self, group: str, keys: Sequence[bytes], *, retention: str = "") -> None:
        """Count blocks as used."""
        if not self._fails("touch"):
            self.inner.touch(group, keys, retention=retention)

    def drop(self, namespace: bytes | None = None) -> int:
        """Remove blocks."""
        return 0 if self._fails("drop") else self.inner.drop(namespace)

    def sweep(self, *, deadline_s: float) -> int:
        """Sweep the other."""
        return 0 if self._fails("sweep") else self.inner.sweep(deadline_s=deadline_s)

    def report(self) -> StoreReport:
        """Of the other."""
        return StoreReport(problem="dead") if self.is_dead else self.inner.report()

    def describe(
        self, group: str, keys: Sequence[bytes], *, deadline_s: float
    ) -> list[BlockFacts | None]:
        """What blocks are kept under."""
        if self._fails("describe") or not isinstance(self.inner, Upkeep):
            return [None] * len(keys)
        return self.inner.describe(group, keys, deadline_s=deadline_s)

    def survey(self, group: str, *, after: bytes, most: int, deadline_s: float) -> list[BlockFacts]:
        """Blocks in order of their keys."""
        if self._fails("survey") or not isinstance(self.inner, Upkeep):
            return []
        return self.inner.survey(group, after=after, most=most, deadline_s=deadline_s)

    def peek(
        self,
        group: str,
        keys: Sequence[bytes],
        destinations: Sequence[bytearray | memoryview],
        *,
        deadline_s: float,
    ) -> list[Outcome]:
        """Copy blocks out without using them, and spoil them."""
        if self._fails("peek") or not isinstance(self.inner, Upkeep):
            return [_DEAD] * len(keys)
        outcomes = self.inner.peek(group, keys, destinations, deadline_s=deadline_s)
        self._spoil_hits(destinations, outcomes)
        return outcomes

    def departed(self) -> list[Departed]:
        """Of the other."""
        if self._fails("departed") or not isinstance(self.inner, Upkeep):
            return []
        return self.inner.departed()

    def discard(self, group: str, keys: Sequence[bytes], *, deadline_s: float) -> int:
        """Remove single blocks."""
        if self._fails("discard") or not isinstance(self.inner, Upkeep):
            return 0
        return self.inner.discard(group, keys, deadline_s=deadline_s)

    def _fails(self, call: str) -> bool:
        self.calls[call] += 1
        if not self.gated or call in self.gated:
            self.gate.wait()
        time.sleep(self.delay_s())
        return self.is_dead

    def _spoil_hits(
        self, data: Sequence[bytearray | memoryview], outcomes: Sequence[Outcome]
    ) -> None:
        for one, outcome in zip(data, outcomes, strict=True):
            if self.spoil is not None and outcome.status == "hit":
                self.spoil(one)

    def _spoilt(self, lent: Lent) -> Lent:
        if lent.data is None or self.spoil is None:
            return lent
        copy = bytearray(lent.data)
        self.spoil(copy)
        return Lent(outcome=lent.outcome, data=memoryview(copy).toreadonly())


def flip_in_memory(store: MemoryStore, group: BlockGroup, key: bytes, bit: int) -> None:
    """Flip a bit of a record, counted from its first."""
    assert store._opened is not None
    kept = store._opened.shelf.get((group.name, key))
    assert kept is not None
    record = bytearray(kept.record)
    record[bit // 8] ^= 1 << bit % 8
    kept.record = bytes(record)


def flip_on_disk(store: DiskStore, group: BlockGroup, key: bytes, bit: int) -> None:
    """Flip a bit of a record in its file, beside the library: the map shows it."""
    from deepinfer_core.stores.disk.index import address_of

    assert store._opened is not None
    index = store._opened.reader._index
    with store._opened.environment.reading() as txn:
        found = index.record(txn, address_of(group.name, key))
        assert found is not None
        record = bytes(found)
    path = store._folder / "data.mdb"
    at = path.read_bytes().rindex(record)
    with path.open("r+b") as file:
        file.seek(at + bit // 8)
        file.write(bytes([record[bit // 8] ^ 1 << bit % 8]))
