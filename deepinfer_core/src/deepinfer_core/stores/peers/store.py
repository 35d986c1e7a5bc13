"""How do machines of one cluster read each other's memory?

Each member keeps in memory what was stored on its machine, and lets the others copy it. Where a
block is, two members know that its key picks (``directory``); owners tell them when they store a
block, and again every few seconds. So nothing is lost with a member but its own blocks, and one
that starts again is told what it must know within a few seconds.

For states, above all: they are of use for minutes, often on the machine that made them, and too
large to be written anywhere.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deepinfer_core.errors import ConfigError
from deepinfer_core.interfaces.kv_store import (
    BlockGroup,
    Outcome,
    StoreCapabilities,
    StoreItem,
    StoreReport,
)
from deepinfer_core.interfaces.kv_upkeep import BlockFacts, Departed
from deepinfer_core.stores.calls import HIT, Tally
from deepinfer_core.stores.guarded import GuardedStore
from deepinfer_core.stores.memory import MemoryStore
from deepinfer_core.stores.peers.announcer import Announcer
from deepinfer_core.stores.peers.directory import Directory
from deepinfer_core.stores.peers.links import Links
from deepinfer_core.stores.peers.member import Member
from deepinfer_core.stores.peers.pool import Pool
from deepinfer_core.stores.retention import Limits

if TYPE_CHECKING:
    pass

__all__ = ["PeersStore"]

_LONGEST_BLOCK = 32 << 20
_MOST_PLACES = 1 << 20
"""Blocks whose place one registrar knows: 300 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """What there is only while the store is open."""

    groups: Mapping[str, BlockGroup]
    local: MemoryStore
    directory: Directory
    member: Member
    pool: Pool
    announcer: Announcer


class PeersStore(GuardedStore[_Opened]):
    """The memory of several machines.

    Args:
        limits: what may be kept of this machine's blocks.
        name: ``host:port`` by which the others reach this member.
        members: names of all members, this one among them.
        secret: that all know.
        listen: ``host:port`` to bind; empty: ``name``.
        call_s: seconds after which a member that does not answer is passed over.
        beat_s: seconds between two announcements of everything.
        clock: seconds that only grow, for ages.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        name: str,
        members: Sequence[str],
        secret: bytes,
        listen: str = "",
        call_s: float = 0.02,
        beat_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(limits)
        self._limits, self._clock = limits, clock
        self._name, self._members, self._secret = name, tuple(members), secret
        self._listen, self._call_s, self._beat_s = listen or name, call_s, beat_s

    @property
    def capabilities(self) -> StoreCapabilities:
        """It ends with the processes."""
        return StoreCapabilities(
            is_persistent=False,
            is_zero_copy=False,
            batch_blocks=16,
            max_block_bytes=min(self._limits.low_bytes, _LONGEST_BLOCK),
            is_remote=True,
        )

    def drop(self, namespace: bytes | None = None) -> int:
        """Remove blocks of a namespace, or all, on every machine."""
        opened = self._opened
        if opened is None:
            return 0
        return opened.local.drop(namespace) + opened.pool.drop(namespace)

    def report(self) -> StoreReport:
        """What this member holds; the problem names others that cannot be reached."""
        opened = self._opened
        if opened is None:
            return StoreReport(
                capacity_bytes=self._limits.capacity_bytes,
                outcomes=self._tally.outcomes(),
                problem="the store is closed",
            )
        return replace(
            opened.local.report(),
            outcomes=self._tally.outcomes(),
            problem=opened.pool.problem(),
        )

    def departed(self) -> list[Departed]:
        """What this member has let go."""
        opened = self._opened
        return opened.local.departed() if opened is not None else []

    def _start(self, groups: Sequence[BlockGroup], tally: Tally) -> _Opened:
        for group in groups:
            if group.block_bytes > _LONGEST_BLOCK:
                raise ConfigError(
                    f"a block of {group.name} has {group.block_bytes} bytes,"
                    f" and core.peers moves at most {_LONGEST_BLOCK} at once",
                    hint="keep this group in another store",
                )
        local = MemoryStore(self._limits, clock=self._clock)
        local.open(groups)
        directory = Directory(_MOST_PLACES)
        others = [member for member in self._members if member != self._name]
        try:
            member = Member(
                name=self._name,
                listen=self._listen,
                others=others,
                secret=self._secret,
                directory=directory,
                store=local,
            )
        except ConfigError:
            local.close()
            raise
        pool = Pool(
            self._name,
            self._members,
            links=Links(self._name, others, self._secret),
            directory=directory,
            call_s=self._call_s,
            beat_s=self._beat_s,
        )
        announcer = Announcer(
            [group.name for group in groups],
            survey=lambda group, after, most: local.survey(
                group, after=after, most=most, deadline_s=math.inf
            ),
            tell=pool.announce,
            registrars=pool.registrars,
            beat_s=self._beat_s,
        )
        return _Opened(
            groups=local.groups,
            local=local,
            directory=directory,
            member=member,
            pool=pool,
            announcer=announcer,
        )

    def _stop(self, opened: _Opened) -> None:
        opened.announcer.close()
        opened.pool.close()
        opened.member.close()
        opened.local.close()

    def _find(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], deadline_s: float
    ) -> list[Outcome]:
        outcomes = opened.local.find(group.name, keys, deadline_s=deadline_s)
        missing = [key for key, one in zip(keys, outcomes, strict=True) if one.status == "miss"]
        elsewhere = opened.pool.locate(group.name, missing, deadline_s) if missing else {}
        return [HIT if key in elsewhere else one for key, one in zip(keys, outcomes, strict=True)]

    def _load(
        self,
        opened: _Opened,
        group: BlockGroup,
        keys: Sequence[bytes],
        destinations: Sequence[bytearray | memoryview],
        deadline_s: float,
        *,
        is_use: bool,
    ) -> list[Outcome]:
        """From this member, and from others if it is a use: each looks after its own."""
        if not is_use:
            return opened.local.peek(group.name, keys, destinations, deadline_s=deadline_s)
        outcomes = opened.local.load(group.name, keys, destinations, deadline_s=deadline_s)
        missing = {
            key: destination
            for key, destination, one in zip(keys, destinations, outcomes, strict=True)
            if one.status in ("miss", "corrupt")
        }
        if not missing:
            return outcomes
        pulled = opened.pool.pull(group, missing, deadline_s)
        result = []
        for key, destination, one in zip(keys, destinations, outcomes, strict=True):
            found = pulled.get(key)
            if found is None or (one.status == "corrupt" and found.status == "miss"):
                result.append(one)
                continue
            if found.status == "hit" and destination is not missing[key]:
                memoryview(destination)[:] = missing[key]  # the same key twice in one call
            result.append(found)
        return result

    def _store(
        self, opened: _Opened, group: BlockGroup, items: Sequence[StoreItem], deadline_s: float
    ) -> list[Outcome]:
        outcomes = opened.local.store(group.name, items, deadline_s=deadline_s)
        new = [
            item.key for item, one in zip(items, outcomes, strict=True) if one.status == "stored"
        ]
        opened.announcer.announce(group.name, new)
        return outcomes

    def _touch(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], retention: str
    ) -> None:
        """Of blocks elsewhere a use is noted where they are copied from."""
        opened.local.touch(group.name, keys, retention=retention)

    def _describe(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], deadline_s: float
    ) -> list[BlockFacts | None]:
        return opened.local.describe(group.name, keys, deadline_s=deadline_s)

    def _survey(
        self, opened: _Opened, group: BlockGroup, after: bytes, most: int, deadline_s: float
    ) -> list[BlockFacts]:
        """Of this member: each looks after its own."""
        return opened.local.survey(group.name, after=after, most=most, deadline_s=deadline_s)

    def _discard(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], deadline_s: float
    ) -> int:
        return opened.local.discard(group.name, keys, deadline_s=deadline_s)

    def _sweep(self, opened: _Opened, deadline_s: float) -> int:
        opened.directory.forget(time.monotonic())
        return opened.local.sweep(deadline_s=deadline_s)
