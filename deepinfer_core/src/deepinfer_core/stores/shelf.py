"""Which records are kept, how much do they take, and which one goes next?

What stands for a record is the store's affair: its bytes, or the place where they lie. Its length
is what the record takes.

Not for several threads at once: the store that owns it has the lock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass
from heapq import nsmallest
from typing import Generic, TypeVar

from deepinfer_core.interfaces.kv_store import Outcome
from deepinfer_core.interfaces.kv_upkeep import BlockFacts
from deepinfer_core.stores.calls import FULL, OVER_QUOTA, Tally
from deepinfer_core.stores.ranking import Ranking
from deepinfer_core.stores.removals import Removals
from deepinfer_core.stores.retention import Limits

__all__ = ["Address", "Kept", "Shelf"]

Address = tuple[str, bytes]
"""Group and key."""


Record = TypeVar("Record", bound=Sized)


@dataclass(slots=True, kw_only=True)
class Kept(Generic[Record]):
    """A record and what decides when it goes.

    Attributes:
        record: what stands for it.
        namespace, depth: as of ``StoreItem``.
        retention: of all classes that its users named the one that keeps it longest.
        stored_s: when it came.
        used_s: when its last use was noted.
    """

    record: Record
    namespace: bytes
    depth: int
    retention: str
    stored_s: float
    used_s: float


class Shelf(Generic[Record]):
    """Records within limits.

    Args:
        limits: what may be kept.
        clock: seconds that only grow.
        tally: counts what is removed.
        left: is told of each record that is not kept any more.

    Attributes:
        used_bytes: that records take.
    """

    def __init__(
        self,
        limits: Limits,
        clock: Callable[[], float],
        tally: Tally,
        left: Callable[[Kept[Record]], None] = lambda kept: None,
    ) -> None:
        self.used_bytes = 0
        self._limits, self._clock, self._tally, self._left = limits, clock, tally, left
        self._kept: dict[Address, Kept[Record]] = {}
        self._used_by: dict[bytes, int] = {}
        self._by_age: Ranking[Address, tuple[int, int]] = Ranking()
        self._by_age_of: defaultdict[bytes, Ranking[Address, tuple[int, int]]] = defaultdict(
            Ranking
        )
        self._by_expiry: Ranking[Address, float] = Ranking()

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[tuple[Address, Kept[Record]]]:
        return iter(self._kept.items())

    def get(self, address: Address) -> Kept[Record] | None:
        """A record, if it is there; that is no use yet."""
        return self._kept.get(address)

    def use(self, address: Address, retention: str = "", used_s: float | None = None) -> bool:
        """Note a use, and a class that may keep the record longer; whether it is there.

        Args:
            address: of the record.
            retention: the class; empty: as before.
            used_s: when it was; None: now.
        """
        kept = self._kept.get(address)
        if kept is None:
            return False
        now = self._clock() if used_s is None else max(used_s, kept.used_s)
        longer = self._limits.longer(kept.retention, retention or kept.retention)
        if longer != kept.retention or self._limits.is_use_due(kept.used_s, longer, now):
            kept.used_s, kept.retention = now, longer
            self._rank(address)
        return True

    def put(
        self, address: Address, record: Record, *, namespace: bytes, depth: int, retention: str
    ) -> Outcome | None:
        """Take a record that is not there, and make room for it.

        Returns:
            None, or why there is no room.
        """
        problem = self._admit(namespace, len(record))
        if problem is None:
            now = self._clock()
            kept = Kept(
                record=record,
                namespace=namespace,
                depth=depth,
                retention=retention,
                stored_s=now,
                used_s=now,
            )
            self.take(address, kept)
        return problem

    def take(self, address: Address, kept: Kept[Record]) -> None:
        """Take a record that is not there and was kept before, whatever room there is."""
        self.used_bytes += len(kept.record)
        self._used_by[kept.namespace] = self._used_by.get(kept.namespace, 0) + len(kept.record)
        self._kept[address] = kept
        self._rank(address)

    def facts_of(self, address: Address) -> BlockFacts | None:
        """What a record is kept under; None if it is not there."""
        kept = self._kept.get(address)
        if kept is None:
            return None
        return BlockFacts(
            key=address[1], namespace=kept.namespace, depth=kept.depth, retention=kept.retention
        )

    def behind(self, group: str, after: bytes, most: int) -> list[BlockFacts]:
        """Records of a group in order of their keys, those behind one of them."""
        addresses = (one for one in self._kept if one[0] == group and one[1] > after)
        found = (self.facts_of(one) for one in nsmallest(most, addresses))
        return [facts for facts in found if facts is not None]

    def remove(self, addresses: Sequence[Address], reason: str) -> int:
        """Remove records that are there; how many."""
        removals, now_s = Removals(), self._clock()
        for address in addresses:
            removals.add(reason, now_s - self._kept[address].used_s, *address)
        self.forget(addresses)
        return self._tally.remove_all(removals)

    def forget(self, addresses: Sequence[Address]) -> None:
        """Take records that are there off the books, without counting them as removed."""
        for address in addresses:
            kept = self._kept.pop(address)
            self.used_bytes -= len(kept.record)
            self._used_by[kept.namespace] -= len(kept.record)
            for ranking in (self._by_age, self._by_expiry, self._by_age_of[kept.namespace]):
                ranking.discard(address)
            if not self._used_by[kept.namespace]:
                del self._by_age_of[kept.namespace], self._used_by[kept.namespace]
            self._left(kept)

    def remove_namespace(self, namespace: bytes | None) -> int:
        """Remove all records of a namespace, or all; how many."""
        found = [
            address
            for address, kept in self._kept.items()
            if namespace is None or kept.namespace == namespace
        ]
        return self.remove(found, "dropped")

    def remove_expired(self, most: int) -> int:
        """Remove records whose time is over, so many at most; how many."""
        now = self._clock()
        found: list[Address] = []
        while len(found) < most:
            first = self._by_expiry.first()
            if first is None or first[1] > now:
                break
            self._by_expiry.discard(first[0])
            found.append(first[0])
        return self.remove(found, "expired")

    def make_room(self) -> int:
        """Down to the lower mark, if more than the upper one is taken; how many were removed."""
        if self.used_bytes <= self._limits.high_bytes:
            return 0
        return self._free(self._by_age, self.used_bytes - self._limits.low_bytes, "room")

    def _admit(self, namespace: bytes, size_bytes: int) -> Outcome | None:
        limits = self._limits
        over = self._used_by.get(namespace, 0) + size_bytes - limits.quota_bytes
        if limits.quota_bytes and over > 0:
            self._free(self._by_age_of[namespace], over, "quota")
            if self._used_by.get(namespace, 0) + size_bytes > limits.quota_bytes:
                return OVER_QUOTA
        if self.used_bytes + size_bytes > limits.capacity_bytes:
            self._free(self._by_age, self.used_bytes + size_bytes - limits.low_bytes, "room")
            if self.used_bytes + size_bytes > limits.capacity_bytes:
                return FULL
        return None

    def _free(
        self, candidates: Ranking[Address, tuple[int, int]], wanted_bytes: int, reason: str
    ) -> int:
        """Remove records until so much has become free, or only young ones are left."""
        young_from = self._clock() - self._limits.young_s
        going: list[Address] = []
        young: list[Address] = []
        while wanted_bytes > 0 and (found := candidates.pop()) is not None:
            kept = self._kept[found[0]]
            if kept.stored_s > young_from:
                young.append(found[0])
            else:
                going.append(found[0])
                wanted_bytes -= len(kept.record)
        for address in young:
            self._rank(address)
        return self.remove(going, reason)

    def _rank(self, address: Address) -> None:
        kept = self._kept[address]
        rank = self._limits.rank(kept.used_s, kept.depth)
        self._by_age.put(address, rank)
        self._by_age_of[kept.namespace].put(address, rank)
        self._by_expiry.put(address, self._limits.expires_s(kept.used_s, kept.retention))
