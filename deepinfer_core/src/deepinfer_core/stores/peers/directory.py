"""Which machine has a block, and which members know that?

Each block's place is known to two *registrars*, members that its key picks: of all members the two
with the greatest digest of member and key. So every member finds the same ones without asking
anybody, and a member that joins or leaves moves the blocks of its own keys only.

What a registrar knows is soft: owners say it again and again, and what is not repeated is
forgotten. A registrar that loses everything costs misses until then, and nothing else.
"""

from __future__ import annotations

import hashlib
import heapq
import threading
from collections import OrderedDict
from collections.abc import Sequence

__all__ = ["REGISTRARS", "Directory", "registrars"]

REGISTRARS = 2
"""Members that know a block's place: one may be dead."""

Address = tuple[str, bytes]
"""Group and key."""


def registrars(members: Sequence[str], key: bytes) -> list[str]:
    """The members that know where a block is, the same for everybody.

    Args:
        members: names of all, in any order.
        key: of the block.
    """
    return heapq.nlargest(
        REGISTRARS,
        members,
        key=lambda member: hashlib.blake2b(key, digest_size=8, key=member.encode()[:64]).digest(),
    )


class Directory:
    """What one registrar knows; used from several threads.

    Args:
        most: blocks; those that were named longest ago are forgotten first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._owners: OrderedDict[Address, dict[str, float]] = OrderedDict()

    def __len__(self) -> int:
        """Blocks whose place is known."""
        return len(self._owners)

    def announce(self, group: str, keys: Sequence[bytes], owner: str, until_s: float) -> None:
        """An owner has blocks.

        Args:
            group: name of their group.
            keys: of the blocks.
            owner: the member that has them.
            until_s: when that is forgotten, of the clock that ``locate`` uses.
        """
        with self._lock:
            for key in keys:
                self._owners.setdefault((group, key), {})[owner] = until_s
                self._owners.move_to_end((group, key))
            while len(self._owners) > self._most:
                self._owners.popitem(last=False)

    def withdraw(self, group: str, keys: Sequence[bytes], owner: str) -> None:
        """An owner has not got blocks any more."""
        with self._lock:
            for key in keys:
                owners = self._owners.get((group, key))
                if owners is not None and owners.pop(owner, None) is not None and not owners:
                    del self._owners[group, key]

    def locate(self, group: str, keys: Sequence[bytes], now_s: float) -> list[list[str]]:
        """For each key the members that have the block, first the one that last said so."""
        with self._lock:
            return [
                sorted(
                    (owner for owner, until_s in owners.items() if until_s > now_s),
                    key=lambda owner: -owners[owner],
                )
                for owners in (self._owners.get((group, key), {}) for key in keys)
            ]

    def forget(self, now_s: float) -> None:
        """Let go of what was not repeated in time."""
        with self._lock:
            late = [
                address
                for address, owners in self._owners.items()
                if all(until_s <= now_s for until_s in owners.values())
            ]
            for address in late:
                del self._owners[address]
