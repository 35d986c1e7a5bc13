"""What keeps finished blocks for longer than an engine's memory does, and gives them back?

A store speaks of *groups*: kinds of cached bytes of one size. What a group's bytes mean it never
learns. A block is found by its group and its key, a digest of all that its bytes depend on; so
blocks never change, the first writer wins, and a block that is already there is a success.

What every store keeps:

* Losing a block costs time and nothing else. What is handed out was checked: its checksum, and that
  it is what was asked for.
* Calls are of many blocks, and each block has its own outcome. What goes wrong with a block, a
  medium or a peer is an outcome, never an exception; ``ValueError`` says that the call itself makes
  no sense, such as a buffer of another length.
* Calls block until they are done or their deadline has passed, so they are made by threads of a
  process that steps no engine, any number at once. When a call has returned, nothing writes into
  its buffers any more.
* A block can be found only when all of it is kept, as durably as the store ever keeps it.

Deadlines are points of ``time.monotonic()``; work on the item at hand is ended, not broken off.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

from deepinfer_core.interfaces.component import Component, Properties
from deepinfer_core.interfaces.store_report import Status, StoreReport

__all__ = [
    "KEY_BYTES",
    "LAYOUT_BYTES",
    "BlockGroup",
    "Buffer",
    "KvStore",
    "Lent",
    "Outcome",
    "ReuseRule",
    "Status",
    "StoreCapabilities",
    "StoreItem",
    "StoreReport",
    "check_item",
    "check_word",
]

KEY_BYTES = 32
"""Bytes of a key and of a namespace, SHA-256 digests."""

LAYOUT_BYTES = 16
"""Bytes of the fingerprint of a layout."""

Buffer = bytes | bytearray | memoryview
"""Bytes that are read and not kept: contiguous, and of bytes if a memoryview."""

ReuseRule = Literal["leading", "last"]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,15}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockGroup:
    """One kind of cached bytes.

    Attributes:
        name: a word of at most 16 characters, such as ``blocks``.
        number_format: how values are encoded, for people; the layout's fingerprint binds it.
        layout: fingerprint of what lies where in a block, 16 bytes.
        block_tokens: tokens that a block covers; of a state, those between two places with one.
        block_bytes: bytes of a block, the same for all.
        reuse: a prefix of n blocks is usable if all n of this group are there (``leading``), or if
            the last of them is (``last``).
        replay_tokens: tokens in front of a prefix's end that are fed again where this group has
            nothing for it; 0: nothing makes up for it, the prefix is shorter.
        retention: class that decides how long blocks are kept if their writer names none.
    """

    name: str
    number_format: str
    layout: bytes
    block_tokens: int
    block_bytes: int
    reuse: ReuseRule
    replay_tokens: int
    retention: str

    def __post_init__(self) -> None:
        """Refuse what no record could say.

        Raises:
            ValueError: names the field.
        """
        for name in ("name", "retention"):
            check_word(name, getattr(self, name))
        if len(self.layout) != LAYOUT_BYTES:
            raise ValueError(f"layout has {LAYOUT_BYTES} bytes, found {len(self.layout)}")
        for name, least in (("block_tokens", 1), ("block_bytes", 1), ("replay_tokens", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is at least {least}, found {getattr(self, name)}")
        if self.reuse not in get_args(ReuseRule):
            raise ValueError(f"reuse is leading or last, found {self.reuse!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreItem:
    """One block to be kept.

    Attributes:
        key: of the block, 32 bytes.
        data: its bytes; read during the call only.
        namespace: root of its chain of keys, 32 bytes: what is counted against one quota, and
            dropped together.
        depth: its number in the chain, from 0; of blocks unused for equally long the deepest go
            first, so that what is left can still be reached.
        retention: class that decides how long it is kept; empty: the group's.
    """

    key: bytes
    data: Buffer
    namespace: bytes
    depth: int
    retention: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one block.

    Attributes:
        status: ``hit``: there, and if it was to be read, read and found whole. ``stored``: kept
            from now on. ``exists``: was kept before. ``miss``: not there. ``corrupt``: there, and
            not what was stored under this key. ``version``: written by another version of the
            software. ``timeout``: not done when the deadline passed. ``unavailable``: the store
            cannot do it now.
        reason: one line behind the last four; no key in full, and no data.
        is_remote: of a hit that was read: it came from the memory of another machine.
        is_full: ``unavailable`` because there is no room for the block; nothing is wrong with the
            store.
    """

    status: Status
    reason: str = ""
    is_remote: bool = False
    is_full: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lent:
    """One block in memory of the store.

    Attributes:
        outcome: as of ``load``.
        data: of a hit, read-only; valid until the block is given back.
    """

    outcome: Outcome
    data: memoryview | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCapabilities:
    """What a store can do; its callers adapt.

    Attributes:
        is_persistent: whether blocks outlive the process.
        is_zero_copy: whether blocks that are lent lie where the store keeps them.
        batch_blocks: blocks in a call from which on more of them gain little.
        max_block_bytes: longest block.
        is_remote: whether calls are answered by other machines, and so take longer.
    """

    is_persistent: bool
    is_zero_copy: bool
    batch_blocks: int
    max_block_bytes: int
    is_remote: bool = False


class KvStore(Component):
    """Keeps blocks by content; may be called from several threads."""

    @property
    def properties(self) -> Properties:
        """Bytes come back as they were stored, or not at all."""
        return Properties(batch_invariant="always", deterministic="always", graph_safe="always")

    @property
    @abstractmethod
    def capabilities(self) -> StoreCapabilities:
        """What it can do."""

    @property
    @abstractmethod
    def groups(self) -> Mapping[str, BlockGroup]:
        """What it was opened for, by name; empty while it is closed."""

    @abstractmethod
    def open(self, groups: Sequence[BlockGroup]) -> None:
        """Get ready for calls; other groups that are kept stay untouched.

        Raises:
            ConfigError: the place cannot be used, or a group does not fit: its blocks are too long,
                or its retention class is not one of the configured ones.
            ValueError: it is open, or two groups have one name.
        """

    @abstractmethod
    def close(self) -> None:
        """End all use; calls find the store unavailable from then on. May be called again."""

    @abstractmethod
    def find(self, group: str, keys: Sequence[bytes], *, deadline_s: float) -> list[Outcome]:
        """Which blocks are there? Reads none; so one of them may still turn out corrupt.

        Returns:
            For each key ``hit``, ``miss``, ``timeout`` or ``unavailable``.

        Raises:
            ValueError: no such group, or a key is not 32 bytes long.
        """

    @abstractmethod
    def load(
        self,
        group: str,
        keys: Sequence[bytes],
        destinations: Sequence[bytearray | memoryview],
        *,
        deadline_s: float,
    ) -> list[Outcome]:
        """Copy blocks out; that counts as their use.

        A block that is not what it should be is removed where that is possible, so that it can be
        stored again.

        Args:
            group: name of a group.
            keys: in order of their chain: earlier ones are done first.
            destinations: one for each key, writable, of exactly ``block_bytes``. Behind any outcome
                but a hit its content is undefined.
            deadline_s: the rest is ``timeout``.

        Returns:
            For each key ``hit``, ``miss``, ``corrupt``, ``version``, ``timeout`` or
            ``unavailable``.

        Raises:
            ValueError: no such group, or a key or destination has another length.
        """

    @contextmanager
    def borrow(
        self, group: str, keys: Sequence[bytes], *, deadline_s: float
    ) -> Iterator[list[Lent]]:
        """Read blocks where the store keeps them, if it can; as a context.

        Hold them for milliseconds: what is lent keeps others from reusing memory.

        Args:
            group: name of a group.
            keys: as of ``load``.
            deadline_s: of the reading; the context itself may last longer.

        Yields:
            One for each key.

        Raises:
            ValueError: no such group, or a key is not 32 bytes long.
        """
        known = self.groups.get(group)
        size = known.block_bytes if known else 0
        copies = [bytearray(size) for _ in keys]
        outcomes = self.load(group, keys, copies, deadline_s=deadline_s)
        yield [
            Lent(
                outcome=outcome,
                data=memoryview(copy).toreadonly() if outcome.status == "hit" else None,
            )
            for outcome, copy in zip(outcomes, copies, strict=True)
        ]

    @abstractmethod
    def store(self, group: str, items: Sequence[StoreItem], *, deadline_s: float) -> list[Outcome]:
        """Keep blocks; one that is there already stays, and counts as used.

        Args:
            group: name of a group.
            items: in order of their chain. Where one is not kept, those behind it are not either,
                so that a chain has no holes.
            deadline_s: the rest is ``timeout``.

        Returns:
            For each item ``stored``, ``exists``, ``timeout`` or ``unavailable``. All that is
            ``stored`` is as durable as the store ever makes it.

        Raises:
            ValueError: no such group, or an item's key, namespace, data, depth or retention does
                not fit.
        """

    @abstractmethod
    def touch(self, group: str, keys: Sequence[bytes], *, retention: str = "") -> None:
        """Count blocks as used, for what was read past the store; may be forgotten.

        Args:
            group: name of a group.
            keys: those that are not there are passed over.
            retention: also keep them for as long as this class says; empty: as before.
        """

    @abstractmethod
    def drop(self, namespace: bytes | None = None) -> int:
        """Remove all blocks of a namespace, or of all, in every group. May take long.

        Returns:
            How many.

        Raises:
            EngineError: not all could be removed.
        """

    @abstractmethod
    def sweep(self, *, deadline_s: float) -> int:
        """Remove what has expired, and make room before it is needed; called once a minute.

        Returns:
            How many blocks were removed.
        """

    @abstractmethod
    def report(self) -> StoreReport:
        """What there is to tell."""


def check_item(group: BlockGroup, item: StoreItem) -> None:
    """Refuse what no block of the group is.

    Raises:
        ValueError: names the field.
    """
    for name, found in (("key", item.key), ("namespace", item.namespace)):
        if len(found) != KEY_BYTES:
            raise ValueError(f"a {name} has {KEY_BYTES} bytes, found {len(found)}")
    if len(item.data) != group.block_bytes:
        raise ValueError(f"a block has {group.block_bytes} bytes, found {len(item.data)}")
    if not 0 <= item.depth < 1 << 32:
        raise ValueError(f"depth is 0 to 2**32 - 1, found {item.depth}")
    if item.retention:
        check_word("retention", item.retention)


def check_word(field_name: str, word: str) -> None:
    """Refuse what is no name of a group or retention class.

    Raises:
        ValueError: names the field.
    """
    if not _NAME.fullmatch(word):
        raise ValueError(
            f"{field_name} is a word of at most 16 lower case characters, found {word!r}"
        )
