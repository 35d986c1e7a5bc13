"""What do the parts of the suite for stores share: groups, blocks, and the store under test?"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import pytest

from deepinfer_core.interfaces.kv_store import BlockGroup, KvStore, StoreItem
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER, STATES

__all__ = ["KvStoreSuite", "block", "chain", "item", "key"]

_TENANT = hashlib.sha256(b"tenant").digest()


def key(name: object) -> bytes:
    """A key by a name."""
    return hashlib.sha256(f"key of {name}".encode()).digest()


def block(name: object, group: BlockGroup = BLOCKS) -> bytes:
    """The bytes of the block with that key: no two places of it alike, no two blocks alike."""
    return hashlib.shake_128(f"{group.name} {name}".encode()).digest(group.block_bytes)


def item(
    name: object,
    group: BlockGroup = BLOCKS,
    *,
    namespace: bytes = _TENANT,
    depth: int = 0,
    retention: str = "",
) -> StoreItem:
    """The block of a name, to be stored."""
    return StoreItem(
        key=key(name),
        data=block(name, group),
        namespace=namespace,
        depth=depth,
        retention=retention,
    )


def chain(name: object, count: int, *, namespace: bytes = _TENANT) -> list[StoreItem]:
    """The blocks ``(name, 0)``, ``(name, 1)`` ... of one text."""
    return [item((name, depth), depth=depth, namespace=namespace) for depth in range(count)]


class KvStoreSuite:
    """The store under test, and what a test may do to it.

    A subclass provides ``component`` and, where it can, the other members.
    """

    @pytest.fixture
    def component(self) -> KvStore:
        """A store that is not open, with nothing in it.

        It has room for 64 to 512 blocks of 4,096 bytes, no quota, and protects new blocks for 60
        seconds; classes ``agent``, ``chat`` and ``state`` keep blocks for 3 days, 7 days and 3
        minutes.
        """
        raise NotImplementedError(f"{type(self).__name__} must define the fixture 'component'")

    @pytest.fixture
    def limited(self) -> KvStore:
        """The same with a quota of 8 blocks of 4,096 bytes a namespace."""
        pytest.skip("the suite was given no store with a quota: define the fixture 'limited'")

    @pytest.fixture
    def store(self, component: KvStore) -> Iterator[KvStore]:
        """The component, open for both groups."""
        component.open([BLOCKS, STATES])
        yield component
        component.close()

    def pass_time(self, seconds: float) -> None:
        """Let time pass for the stores of this test."""
        pytest.skip("the suite was given no way to let time pass: define 'pass_time'")

    def flip(self, store: KvStore, group: BlockGroup, name: object, bit: int) -> None:
        """Flip a bit of what is kept of a block, counted from the first of its record.

        ``store`` is open. A store that keeps no records but has checks of its own flips a bit of
        the block for every number from 1,536 on, and skips the smaller ones.
        """
        pytest.skip("the suite was given no way to damage blocks: define 'flip'")

    def settle(self, store: KvStore) -> None:
        """Wait for what the store does behind its calls, if it does any; before time passes too."""

    def again(self) -> KvStore:
        """Another store that finds what ``component`` kept; that one is closed."""
        raise NotImplementedError(f"{type(self).__name__} is persistent and must define 'again'")

    def found(self, store: KvStore, names: Sequence[object]) -> list[str]:
        """Which blocks are there?"""
        outcomes = store.find(BLOCKS.name, [key(name) for name in names], deadline_s=FOREVER)
        return [one.status for one in outcomes]

    def read(self, store: KvStore, name: object, group: BlockGroup = BLOCKS) -> str:
        """Load one block, and compare it with what was stored if it is a hit."""
        destination = bytearray(group.block_bytes)
        (outcome,) = store.load(group.name, [key(name)], [destination], deadline_s=FOREVER)
        if outcome.status == "hit":
            assert destination == block(name, group)
        return outcome.status

    def write(self, store: KvStore, *items: StoreItem) -> list[str]:
        """Store blocks of the first group."""
        outcomes = store.store(BLOCKS.name, items, deadline_s=FOREVER)
        return [one.status for one in outcomes]
