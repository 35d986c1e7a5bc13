"""What does a sequence wait for, and hold, while blocks come to it from a store?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Fetch", "Taken"]


class Taken(NamedTuple):
    """What of the blocks that a sequence takes over came from a store for it.

    Attributes:
        stored: blocks.
        peers: those of them that came from the memory of other machines.
        remote_state: number in the chain of the block at whose end a state is that did; None: none.
    """

    stored: int = 0
    peers: int = 0
    remote_state: int | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Fetch:
    """The blocks that one waiting sequence wants.

    Attributes:
        keys: of the wanted blocks, in order.
        first: number in the chain of the first of them.
        deadline_s: when the sequence waits no longer; monotonic clock.
        ticket: under which news come; None: none come any more.
        arriving: what has come and is not in its pages yet, in pieces.
        block_ids: blocks that it holds, from the beginning of the chain: those that were cached,
            then those that came.
        came: leading keys whose blocks have come from the store.
        state: leading keys up to that whose state has come; 0: none has.
        stored: numbers of the blocks that came and were not cached.
        remote: places among the keys of blocks that came from other machines' memory.
        remote_state: that of the block at whose end a state is that did; None: none did.
        reason: why it ended; empty: it has not, or nothing was asked for.
        let_go: leading blocks that it held until others needed the room.
    """

    keys: tuple[bytes, ...]
    first: int
    deadline_s: float
    ticket: int | None = None
    arriving: int = 0
    block_ids: tuple[int, ...] = ()
    came: int = 0
    state: int = 0
    stored: list[int] = field(default_factory=list)
    remote: set[int] = field(default_factory=set)
    remote_state: int | None = None
    reason: str = ""
    let_go: int = 0

    @property
    def is_open(self) -> bool:
        """Whether the sequence is to wait for it."""
        return self.ticket is not None or self.arriving > 0

    def taken(self, blocks: int) -> Taken:
        """What a sequence has of it that takes so many leading blocks over."""
        came = [number for number in self.stored if number < blocks]
        remote = self.remote_state
        return Taken(
            len(came),
            sum(number - self.first in self.remote for number in came),
            None if remote is None else self.first + remote,
        )
