"""How far is one prefix? Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from deepinfer_core.interfaces.kv_store import KEY_BYTES
from deepinfer_core.stores.fetcher.loads import Load
from deepinfer_core.stores.fetcher.messages import Seek

__all__ = ["Prefix", "prefix_of"]


@dataclass(slots=True, eq=False, kw_only=True)
class Prefix:
    """A prefix that is being fetched.

    Attributes:
        seek: what was asked for.
        keys: of its blocks.
        end: behind the last block that is there, as far as known; less if loading showed so.
        asked: behind the last block that is being loaded, or was.
        told: behind the last block that the engine was told of.
        loads: of the blocks between ``told`` and ``asked``.
        has_state: whether the engine was told of a state.
        in_flight: calls of the store that load for it.
        reason: why it ends where it does; empty: it is all there.
        stage: what happens to it.
    """

    seek: Seek
    keys: list[bytes]
    end: int
    asked: int
    told: int
    loads: deque[Load] = field(default_factory=deque)
    has_state: bool = False
    in_flight: int = 0
    reason: str = ""
    stage: Literal["match", "blocks", "state", "over"] = "match"

    @property
    def ticket(self) -> int:
        """Its name."""
        return self.seek.ticket

    def cut(self, reason: str) -> None:
        """It ends where it was told of."""
        self.end, self.reason = self.told, reason


def prefix_of(seek: Seek) -> Prefix:
    """A prefix of which nothing is known yet."""
    keys = [seek.keys[at : at + KEY_BYTES] for at in range(0, len(seek.keys), KEY_BYTES)]
    return Prefix(seek=seek, keys=keys, end=seek.has, asked=seek.has, told=seek.has)
