"""What does a sequence wait for, and hold, while blocks come to it from a store?"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Fetch"]


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

    @property
    def is_open(self) -> bool:
        """Whether the sequence is to wait for it."""
        return self.ticket is not None or self.arriving > 0
