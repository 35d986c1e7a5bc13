"""What is in a store, and is all of it whole?

Through the interface of stores alone, a few blocks at a time, so that it can be done beside those
who use the store. What comes and goes meanwhile may be counted or not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from deepinfer_core.errors import NotSupported
from deepinfer_core.interfaces.kv_store import BlockGroup, KvStore, Outcome, Status
from deepinfer_core.interfaces.kv_upkeep import BlockFacts, Upkeep

__all__ = ["Contents", "Damaged", "Verified", "contents", "discard_damaged", "verify"]

_LISTED_AT_ONCE = 1024
_READ_AT_ONCE = 16
_FOREVER = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Blocks of one group.

    Attributes:
        blocks: how many.
        data_bytes: of all blocks, without what a store adds.
        classes: blocks by retention class.
        namespaces: blocks by namespace.
    """

    blocks: int
    data_bytes: int
    classes: Mapping[str, int]
    namespaces: Mapping[bytes, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """A block that cannot be used.

    Attributes:
        group: its name.
        key: of the block.
        outcome: of reading it: neither ``hit`` nor ``miss``.
    """

    group: str
    key: bytes
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What reading everything showed.

    Attributes:
        outcomes: blocks by outcome.
        damaged: those that are neither whole nor gone.
    """

    outcomes: Mapping[Status, int]
    damaged: Sequence[Damaged]


def contents(store: KvStore) -> dict[str, Contents]:
    """What is kept, by group; no block is read.

    Raises:
        NotSupported: the store does not tell.
    """
    return {name: _contents_of(store, group) for name, group in store.groups.items()}


def _contents_of(store: KvStore, group: BlockGroup) -> Contents:
    classes: Counter[str] = Counter()
    namespaces: Counter[bytes] = Counter()
    for facts in _listed(store, group):
        classes[facts.retention] += 1
        namespaces[facts.namespace] += 1
    blocks = classes.total()
    return Contents(
        blocks=blocks, data_bytes=blocks * group.block_bytes, classes=classes, namespaces=namespaces
    )


def verify(store: KvStore) -> Verified:
    """Read every block.

    A store that writes removes what is damaged, and counts all as used: open one that only reads,
    if it is told so.

    Args:
        store: open.

    Raises:
        NotSupported: the store does not list its blocks.
    """
    outcomes: Counter[Status] = Counter()
    damaged: list[Damaged] = []
    for group in store.groups.values():
        room = [bytearray(group.block_bytes) for _ in range(_READ_AT_ONCE)]
        keys: list[bytes] = []
        for facts in _listed(store, group):
            keys.append(facts.key)
            if len(keys) == _READ_AT_ONCE:
                _read(store, group, keys, room, outcomes, damaged)
                keys = []
        _read(store, group, keys, room, outcomes, damaged)
    return Verified(outcomes=dict(outcomes), damaged=damaged)


def _read(
    store: KvStore,
    group: BlockGroup,
    keys: Sequence[bytes],
    room: Sequence[bytearray],
    outcomes: Counter[Status],
    damaged: list[Damaged],
) -> None:
    found = store.load(group.name, keys, room[: len(keys)], deadline_s=_FOREVER)
    for key, outcome in zip(keys, found, strict=True):
        outcomes[outcome.status] += 1
        if outcome.status not in ("hit", "miss"):
            damaged.append(Damaged(group=group.name, key=key, outcome=outcome))


def discard_damaged(store: KvStore, damaged: Sequence[Damaged]) -> int:
    """Remove those blocks that are still damaged when they are read again; how many.

    Args:
        store: open, and writes.
        damaged: what ``verify`` found.
    """
    removed = 0
    for one in damaged:
        room = bytearray(store.groups[one.group].block_bytes)
        [outcome] = store.load(one.group, [one.key], [room], deadline_s=_FOREVER)
        if outcome.status in ("corrupt", "version"):
            _upkeep(store).discard(one.group, [one.key], deadline_s=_FOREVER)
            [left] = store.find(one.group, [one.key], deadline_s=_FOREVER)
            removed += left.status == "miss"
    return removed


def _listed(store: KvStore, group: BlockGroup) -> Iterator[BlockFacts]:
    after = b""
    while found := _upkeep(store).survey(
        group.name, after=after, most=_LISTED_AT_ONCE, deadline_s=_FOREVER
    ):
        yield from found
        after = found[-1].key


def _upkeep(store: KvStore) -> Upkeep:
    if not isinstance(store, Upkeep):
        raise NotSupported(
            f"asked for single blocks of a store, found {type(store).__name__}, which lists none",
            hint="deepinfer cache stats --url asks the service how much is kept, gc and purge --all"
            " --yes need no list; a store that has interfaces.kv_upkeep:Upkeep can be looked at",
        )
    return store
