"""Does a call of a store make sense, and what became of all of them?"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from deepinfer_core.errors import ConfigError
from deepinfer_core.interfaces.kv_store import (
    KEY_BYTES,
    BlockGroup,
    Outcome,
    StoreItem,
    check_item,
)
from deepinfer_core.interfaces.kv_upkeep import Departed
from deepinfer_core.interfaces.store_report import EvictedAges, Status
from deepinfer_core.stores.records import record_bytes
from deepinfer_core.stores.removals import Removals
from deepinfer_core.stores.retention import Limits

__all__ = [
    "CLOSED",
    "EXISTS",
    "FULL",
    "HIT",
    "LATE",
    "MISS",
    "OVER_QUOTA",
    "STORED",
    "Tally",
    "group_named",
    "groups_by_name",
    "in_order",
    "is_late",
    "require_class",
    "require_destinations",
    "require_items",
    "require_keys",
    "seconds_until",
]

_LONGEST_WAIT_S = 1e6

_MOST_DEPARTED = 1 << 16
"""Blocks that a store has let go and nobody has asked for; the first of more are forgotten."""

HIT = Outcome(status="hit")
STORED = Outcome(status="stored")
EXISTS = Outcome(status="exists")
MISS = Outcome(status="miss", reason="not kept")
LATE = Outcome(status="timeout", reason="the deadline has passed")
CLOSED = Outcome(status="unavailable", reason="the store is closed")
FULL = Outcome(status="unavailable", reason="full of blocks that are too young to go", is_full=True)
OVER_QUOTA = Outcome(
    status="unavailable", reason="the namespace has used up its quota", is_full=True
)


def is_late(deadline_s: float) -> bool:
    """Whether a deadline has passed."""
    return time.monotonic() >= deadline_s


def seconds_until(deadline_s: float) -> float:
    """How long to wait for something; bounded, as clocks of the system are."""
    return min(max(deadline_s - time.monotonic(), 0.0), _LONGEST_WAIT_S)


def groups_by_name(groups: Sequence[BlockGroup], limits: Limits) -> dict[str, BlockGroup]:
    """The groups that a store is opened for.

    Raises:
        ConfigError: a group's blocks are too long, or nobody said how long they are kept.
        ValueError: two groups have one name.
    """
    for group in groups:
        if group.retention not in limits.retention_s:
            known = ", ".join(limits.retention_s)
            raise ConfigError(
                f"group {group.name} asks for the retention class {group.retention}, found {known}",
                hint="add it to retention_s",
            )
        if record_bytes(group) > limits.low_bytes:
            raise ConfigError(
                f"a block of {group.name} takes {record_bytes(group)} bytes,"
                f" found room for {limits.low_bytes}",
                hint="raise capacity_bytes",
            )
    found = {group.name: group for group in groups}
    if len(found) != len(groups):
        raise ValueError("two groups have one name")
    return found


def group_named(groups: Mapping[str, BlockGroup], name: str) -> BlockGroup:
    """The group of a call.

    Raises:
        ValueError: the store was not opened for it.
    """
    if name not in groups:
        raise ValueError(f"the store is open for {', '.join(groups)}, found group {name!r}")
    return groups[name]


def require_keys(keys: Iterable[bytes]) -> None:
    """Refuse what is no key.

    Raises:
        ValueError: a key has another length.
    """
    for key in keys:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes, found {len(key)}")


def require_destinations(
    group: BlockGroup, keys: Sequence[bytes], destinations: Sequence[bytearray | memoryview]
) -> None:
    """Refuse destinations that blocks do not fit into.

    Raises:
        ValueError: there are more or fewer than keys, or one has another length or is read-only.
    """
    if len(keys) != len(destinations):
        raise ValueError(f"{len(keys)} keys, found {len(destinations)} destinations")
    block_bytes = group.block_bytes
    for one in destinations:
        if len(one) != block_bytes:
            raise ValueError(f"a block has {block_bytes} bytes, found {len(one)}")
        view = one if isinstance(one, memoryview) else memoryview(one)
        if view.readonly:
            raise ValueError("a destination is written to, found one that is read-only")


def require_items(group: BlockGroup, items: Sequence[StoreItem], limits: Limits | None) -> None:
    """Refuse items that are no blocks of the group.

    Raises:
        ValueError: names the field.
    """
    for item in items:
        check_item(group, item)
        require_class(item.retention, limits)


def require_class(retention: str, limits: Limits | None) -> None:
    """Refuse a retention class that nobody configured; empty is none.

    Without limits of its own a store takes any, and leaves it to those that it consists of.

    Raises:
        ValueError: names it.
    """
    if limits is not None and retention and retention not in limits.retention_s:
        known = ", ".join(limits.retention_s)
        raise ValueError(f"retention is one of {known}, found {retention!r}")


def in_order(
    items: Sequence[StoreItem], keep: Callable[[StoreItem], Outcome], deadline_s: float
) -> list[Outcome]:
    """Keep items one by one, up to the first that is not kept; its outcome is that of the rest."""
    outcomes: list[Outcome] = []
    for done, item in enumerate(items):
        outcome = LATE if is_late(deadline_s) else keep(item)
        if outcome.status not in ("stored", "exists"):
            return outcomes + [outcome] * (len(items) - done)
        outcomes.append(outcome)
    return outcomes


class Tally:
    """What a store did; counted from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outcomes: Counter[Status] = Counter()
        self._removals = Removals()
        self._departed: deque[Departed] | None = None

    def count(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Count blocks by what became of them; gives them back."""
        with self._lock:
            self._outcomes.update(one.status for one in outcomes)
        return list(outcomes)

    def remove(self, reason: str, blocks: int = 1) -> None:
        """Count blocks that were removed, whatever their age."""
        if blocks:
            with self._lock:
                self._removals.blocks[reason] += blocks

    def remove_all(self, removals: Removals) -> int:
        """Count what a change removed; how many blocks."""
        with self._lock:
            self._removals.join(removals)
        self.note_departed(removals.departed)
        return removals.blocks.total()

    def note_departed(self, gone: Sequence[Departed]) -> None:
        """Note blocks that a store let go by itself, if somebody wants to know."""
        with self._lock:
            if self._departed is not None:
                self._departed.extend(gone)

    def departed(self) -> list[Departed]:
        """See ``Upkeep.departed``."""
        with self._lock:
            gone, self._departed = self._departed or (), deque(maxlen=_MOST_DEPARTED)
        return list(gone)

    def outcomes(self) -> dict[Status, int]:
        """Blocks by outcome."""
        with self._lock:
            return dict(self._outcomes)

    def removed(self) -> dict[str, int]:
        """Removed blocks by reason."""
        with self._lock:
            return dict(self._removals.blocks)

    def ages(self) -> dict[str, EvictedAges]:
        """For how long they had been unused, by reason."""
        with self._lock:
            return self._removals.ages()
