"""What do all stores of the core do alike: refuse calls that make no sense, count the others?

A store says what it is made of while it is open, and what a call does with that. The rest is here:
is it open, is the group known, do lengths fit, has the deadline passed? A call goes on with what
was open when it began.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Generic, Protocol, TypeVar

from deepinfer_core.interfaces.kv_store import BlockGroup, KvStore, Lent, Outcome, StoreItem
from deepinfer_core.interfaces.kv_upkeep import BlockFacts, Departed, Upkeep
from deepinfer_core.stores.calls import (
    CLOSED,
    LATE,
    Tally,
    group_named,
    is_late,
    require_class,
    require_destinations,
    require_items,
    require_keys,
)
from deepinfer_core.stores.retention import Limits

__all__ = ["GuardedStore", "HasGroups"]


class HasGroups(Protocol):
    """What there is only while a store is open."""

    @property
    def groups(self) -> Mapping[str, BlockGroup]:
        """What it was opened for, by name."""


Opened = TypeVar("Opened", bound=HasGroups)


class GuardedStore(KvStore, Upkeep, Generic[Opened]):
    """A store whose calls make sense when they reach it.

    Args:
        limits: whose retention classes are known; None: those of the stores that it consists of.

    Attributes:
        _opened: None while the store is closed.
        _tally: what it did since it was opened.
    """

    def __init__(self, limits: Limits | None) -> None:
        self._known_classes = limits
        self._opened: Opened | None = None
        self._tally = Tally()
        self._opening = threading.Lock()

    @property
    def groups(self) -> Mapping[str, BlockGroup]:
        """What it was opened for."""
        opened = self._opened
        return opened.groups if opened is not None else {}

    def open(self, groups: Sequence[BlockGroup]) -> None:
        """Get ready for calls."""
        if len({group.name for group in groups}) != len(groups):
            raise ValueError("two groups have one name")
        with self._opening:
            if self._opened is not None:
                raise ValueError("the store is open")
            tally = Tally()
            self._opened, self._tally = self._start(groups, tally), tally

    def close(self) -> None:
        """End all use."""
        with self._opening:
            opened, self._opened = self._opened, None
            if opened is not None:
                self._stop(opened)

    def find(self, group: str, keys: Sequence[bytes], *, deadline_s: float) -> list[Outcome]:
        """Look blocks up."""
        opened = self._opened
        if opened is None:
            return [CLOSED] * len(keys)
        known = group_named(opened.groups, group)
        require_keys(keys)
        if is_late(deadline_s):
            return [LATE] * len(keys)
        return self._find(opened, known, keys, deadline_s)

    def load(
        self,
        group: str,
        keys: Sequence[bytes],
        destinations: Sequence[bytearray | memoryview],
        *,
        deadline_s: float,
    ) -> list[Outcome]:
        """Copy blocks out, each checked on the way."""
        return self._tally.count(self._read(group, keys, destinations, deadline_s, is_use=True))

    @contextmanager
    def borrow(
        self, group: str, keys: Sequence[bytes], *, deadline_s: float
    ) -> Iterator[list[Lent]]:
        """Show blocks, where they are kept if the store can."""
        opened, refused = self._opened, CLOSED
        if opened is not None:
            known, refused = group_named(opened.groups, group), LATE
            require_keys(keys)
        if opened is None or is_late(deadline_s):
            yield [Lent(outcome=one) for one in self._tally.count([refused] * len(keys))]
            return
        with ExitStack() as stack:
            lent = self._lend(stack, opened, known, keys, deadline_s)
            self._tally.count([one.outcome for one in lent])
            try:
                yield lent
            finally:
                for data in (one.data for one in lent if one.data is not None):
                    data.release()

    def store(self, group: str, items: Sequence[StoreItem], *, deadline_s: float) -> list[Outcome]:
        """Keep copies of blocks."""
        opened = self._opened
        if opened is None:
            return self._tally.count([CLOSED] * len(items))
        known = group_named(opened.groups, group)
        require_items(known, items, self._known_classes)
        if is_late(deadline_s):
            return self._tally.count([LATE] * len(items))
        return self._tally.count(self._store(opened, known, items, deadline_s))

    def touch(self, group: str, keys: Sequence[bytes], *, retention: str = "") -> None:
        """Count blocks as used."""
        opened = self._opened
        if opened is None:
            return
        known = group_named(opened.groups, group)
        require_keys(keys)
        require_class(retention, self._known_classes)
        self._touch(opened, known, keys, retention)

    def describe(
        self, group: str, keys: Sequence[bytes], *, deadline_s: float
    ) -> list[BlockFacts | None]:
        """What blocks are kept under."""
        opened = self._opened
        if opened is None:
            return [None] * len(keys)
        known = group_named(opened.groups, group)
        require_keys(keys)
        if is_late(deadline_s):
            return [None] * len(keys)
        return self._describe(opened, known, keys, deadline_s)

    def survey(self, group: str, *, after: bytes, most: int, deadline_s: float) -> list[BlockFacts]:
        """Blocks that are there, in order of their keys."""
        opened = self._opened
        if opened is None:
            return []
        known = group_named(opened.groups, group)
        if most <= 0 or is_late(deadline_s):
            return []
        return self._survey(opened, known, after, most, deadline_s)

    def peek(
        self,
        group: str,
        keys: Sequence[bytes],
        destinations: Sequence[bytearray | memoryview],
        *,
        deadline_s: float,
    ) -> list[Outcome]:
        """Copy blocks out without using them."""
        found = self._read(group, keys, destinations, deadline_s, is_use=False)
        self._tally.count([one for one in found if one.status in ("corrupt", "version")])
        return found

    def departed(self) -> list[Departed]:
        """Blocks that it has let go since it was asked last."""
        return self._tally.departed() if self._opened is not None else []

    def discard(self, group: str, keys: Sequence[bytes], *, deadline_s: float) -> int:
        """Remove single blocks."""
        opened = self._opened
        if opened is None:
            return 0
        known = group_named(opened.groups, group)
        require_keys(keys)
        if is_late(deadline_s):
            return 0
        return self._discard(opened, known, keys, deadline_s)

    def sweep(self, *, deadline_s: float) -> int:
        """Remove what has expired, and make room before it is needed."""
        opened = self._opened
        return 0 if opened is None else self._sweep(opened, deadline_s)

    def _read(
        self,
        group: str,
        keys: Sequence[bytes],
        destinations: Sequence[bytearray | memoryview],
        deadline_s: float,
        *,
        is_use: bool,
    ) -> list[Outcome]:
        """Copy blocks out, if the call makes sense."""
        opened = self._opened
        if opened is None:
            return [CLOSED] * len(keys)
        known = group_named(opened.groups, group)
        require_keys(keys)
        require_destinations(known, keys, destinations)
        if is_late(deadline_s):
            return [LATE] * len(keys)
        return self._load(opened, known, keys, destinations, deadline_s, is_use=is_use)

    @abstractmethod
    def _start(self, groups: Sequence[BlockGroup], tally: Tally) -> Opened:
        """Get ready; raises what ``open`` does."""

    @abstractmethod
    def _stop(self, opened: Opened) -> None:
        """End all use."""

    @abstractmethod
    def _find(
        self, opened: Opened, group: BlockGroup, keys: Sequence[bytes], deadline_s: float
    ) -> list[Outcome]:
        """Look blocks up."""

    @abstractmethod
    def _load(
        self,
        opened: Opened,
        group: BlockGroup,
        keys: Sequence[bytes],
        destinations: Sequence[bytearray | memoryview],
        deadline_s: float,
        *,
        is_use: bool,
    ) -> list[Outcome]:
        """Copy blocks out; whether that is noted as their use is said."""

    def _lend(
        self,
        stack: ExitStack,
        opened: Opened,
        group: BlockGroup,
        keys: Sequence[bytes],
        deadline_s: float,
    ) -> list[Lent]:
        """Show blocks until the stack is closed: copies, unless the store knows better."""
        copies = [bytearray(group.block_bytes) for _ in keys]
        outcomes = self._load(opened, group, keys, copies, deadline_s, is_use=True)
        views = [memoryview(copy).toreadonly() for copy in copies]
        return [
            Lent(outcome=one, data=view if one.status == "hit" else None)
            for one, view in zip(outcomes, views, strict=True)
        ]

    @abstractmethod
    def _store(
        self, opened: Opened, group: BlockGroup, items: Sequence[StoreItem], deadline_s: float
    ) -> list[Outcome]:
        """Keep copies of blocks."""

    @abstractmethod
    def _touch(
        self, opened: Opened, group: BlockGroup, keys: Sequence[bytes], retention: str
    ) -> None:
        """Count blocks as used."""

    @abstractmethod
    def _describe(
        self, opened: Opened, group: BlockGroup, keys: Sequence[bytes], deadline_s: float
    ) -> list[BlockFacts | None]:
        """What blocks are kept under."""

    @abstractmethod
    def _survey(
        self, opened: Opened, group: BlockGroup, after: bytes, most: int, deadline_s: float
    ) -> list[BlockFacts]:
        """Blocks in order of their keys."""

    @abstractmethod
    def _discard(
        self, opened: Opened, group: BlockGroup, keys: Sequence[bytes], deadline_s: float
    ) -> int:
        """Remove single blocks."""

    @abstractmethod
    def _sweep(self, opened: Opened, deadline_s: float) -> int:
        """Remove what has expired, and make room."""
