"""What may be asked of a store by whoever looks after single blocks of it?

Stores that are made of others move blocks from one to the next, fill up what is missing, and take
back what was not kept as a whole; so do the verbs that check a store. Nobody else needs these
calls. A store that offers them inherits ``Upkeep`` beside ``KvStore``; of one that does not, blocks
are served and never moved.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from deepinfer_core.interfaces.kv_store import Outcome

__all__ = ["BlockFacts", "Departed", "Upkeep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFacts:
    """What a block is kept under.

    Attributes:
        key: of the block.
        namespace, depth: as of ``StoreItem``.
        retention: of all classes that its users named the one that keeps it longest.
    """

    key: bytes
    namespace: bytes
    depth: int
    retention: str


class Departed(NamedTuple):
    """A block that a store let go by itself.

    Attributes:
        group: its name.
        key: of the block.
        reason: ``expired``, ``room`` or ``quota``.
    """

    group: str
    key: bytes
    reason: str


class Upkeep(ABC):
    """Calls about single blocks; deadlines, groups and ``ValueError`` as of ``KvStore``."""

    @abstractmethod
    def describe(
        self, group: str, keys: Sequence[bytes], *, deadline_s: float
    ) -> list[BlockFacts | None]:
        """What blocks are kept under; that is no use, and reads none.

        Returns:
            For each key, None where the block is not there or it cannot be told now.
        """

    @abstractmethod
    def survey(self, group: str, *, after: bytes, most: int, deadline_s: float) -> list[BlockFacts]:
        """Which blocks are there, in order of their keys?

        Args:
            group: name of a group.
            after: only those behind this key; empty: from the first one.
            most: that are wanted.
            deadline_s: later it returns what it has.

        Returns:
            As many as wanted or fewer. None at all: there is no more, or the store is unavailable.
        """

    @abstractmethod
    def peek(
        self,
        group: str,
        keys: Sequence[bytes],
        destinations: Sequence[bytearray | memoryview],
        *,
        deadline_s: float,
    ) -> list[Outcome]:
        """Copy blocks out as ``KvStore.load`` does, but that is no use of theirs.

        Of what came of it the report counts what was damaged alone.
        """

    @abstractmethod
    def departed(self) -> list[Departed]:
        """Which blocks has it let go by itself since this was asked last?

        Each is told once, to whoever asks first. They are noted from the first time on that this is
        asked, and the first ones are forgotten where they become too many. What another process
        lets go of the same store nobody is told.
        """

    @abstractmethod
    def discard(self, group: str, keys: Sequence[bytes], *, deadline_s: float) -> int:
        """Remove blocks; those that are not there are passed over. Counted as ``discarded``.

        Returns:
            How many were removed; fewer if the store was unavailable or the deadline passed.
        """
