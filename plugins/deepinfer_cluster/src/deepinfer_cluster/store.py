"""How are blocks kept in a Mooncake pool: the memory of many machines, shared by all of them?

Blocks are records, so what comes back is checked by us, whatever the pool and the network did. The
pool forgets by itself: what was used longest ago when it is full, and what lay on a node that
ended; so the store knows neither capacity nor quotas. ``docs/mooncake.md`` says what it promises.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deepinfer_core.errors import ConfigError, EngineError
from deepinfer_core.interfaces.kv_store import (
    BlockGroup,
    Outcome,
    StoreCapabilities,
    StoreItem,
    StoreReport,
)
from deepinfer_core.interfaces.kv_upkeep import BlockFacts
from deepinfer_core.stores.calls import CLOSED, Tally, groups_by_name
from deepinfer_core.stores.guarded import GuardedStore
from deepinfer_core.stores.records import HEADER_BYTES, RecordFacts, record_bytes
from deepinfer_core.stores.retention import Limits

from deepinfer_cluster.admin import Admin, NotTold
from deepinfer_cluster.census import Census
from deepinfer_cluster.circuits import Circuits
from deepinfer_cluster.lanes import Lanes
from deepinfer_cluster.link import Library, Link
from deepinfer_cluster.places import BATCH_BLOCKS, places_of
from deepinfer_cluster.pool import Names, Place
from deepinfer_cluster.reader import Reader
from deepinfer_cluster.writer import Writer

__all__ = ["MooncakeStore", "Terms"]

_CONNECT_S = 2.0
"""A pool that is there is reached within a tenth of that; one that is not, later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a pool is used; see ``options.MooncakeOptions``."""

    pool: str
    retention_s: Mapping[str, float]
    sweeps: bool
    lanes: int
    lane_bytes: int
    retry_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """What there is only while the store is open."""

    groups: Mapping[str, BlockGroup]
    link: Link
    reader: Reader
    writer: Writer
    census: Census
    evicted: int | None


class MooncakeStore(GuardedStore[_Opened]):
    """Blocks in one pool.

    Args:
        library: the client's.
        place: how the pool is reached.
        admin: of its master.
        terms: how it is used.
        wall: seconds since 1970, for ages.
    """

    def __init__(
        self,
        library: Library,
        place: Place,
        admin: Admin,
        terms: Terms,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._limits = Limits(
            capacity_bytes=terms.lane_bytes, low_ratio=1.0, retention_s=terms.retention_s
        )
        super().__init__(self._limits)
        self._library, self._place, self._admin = library, place, admin
        self._terms, self._wall = terms, wall
        self._names = Names(terms.pool)

    @property
    def capabilities(self) -> StoreCapabilities:
        """Blocks outlive this process, not their node."""
        return StoreCapabilities(
            is_persistent=True,
            is_zero_copy=False,
            batch_blocks=BATCH_BLOCKS,
            max_block_bytes=self._terms.lane_bytes - HEADER_BYTES,
            is_remote=True,
        )

    def _start(self, groups: Sequence[BlockGroup], tally: Tally) -> _Opened:
        """Join the pool; one that cannot be reached is unavailable until it can."""
        terms = self._terms
        for group in groups:
            if places_of(group, terms.lane_bytes).count == 0:
                raise ConfigError(
                    f"a block of {group.name} takes {record_bytes(group)} bytes,"
                    f" found lanes of {terms.lane_bytes}",
                    hint="raise lane_bytes",
                )
        found, names = groups_by_name(groups, self._limits), self._names
        lanes = Lanes(terms.lanes, terms.lane_bytes)
        link = Link(
            self._library,
            self._place,
            names,
            lanes,
            Circuits(terms.retry_s),
            is_ready=self._admin.is_ready,
        )
        link.connect(time.monotonic() + _CONNECT_S)
        return _Opened(
            groups=found,
            link=link,
            reader=Reader(link, names, terms.lane_bytes, is_expired=self._is_expired, tally=tally),
            writer=Writer(link, names, terms.lane_bytes, wall=self._wall),
            census=Census(
                link,
                self._admin,
                names,
                expires_s=self._expires_s,
                tally=tally,
                lane_bytes=terms.lane_bytes,
            ),
            evicted=self._evicted(),
        )

    def _stop(self, opened: _Opened) -> None:
        """Leave the pool; a call that hangs does so when it comes back."""
        opened.link.close()

    def _find(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], deadline_s: float
    ) -> list[Outcome]:
        """Ask the master."""
        return opened.reader.find(group, keys, deadline_s)

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
        """Read blocks from their nodes, each checked here; the pool takes all that for uses."""
        return opened.reader.load(group, keys, destinations, deadline_s)

    def _store(
        self, opened: _Opened, group: BlockGroup, items: Sequence[StoreItem], deadline_s: float
    ) -> list[Outcome]:
        """Write blocks to nodes that the master chooses."""
        return opened.writer.keep(group, items, deadline_s)

    def _touch(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], retention: str
    ) -> None:
        """Let the master take blocks for used; they expire when they would have anyway."""
        if keys:
            opened.link.look_at(self._names.of(group.name, keys))

    def _describe(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], deadline_s: float
    ) -> list[BlockFacts | None]:
        """Read their headers."""
        return opened.census.describe(group.name, keys, deadline_s)

    def _survey(
        self, opened: _Opened, group: BlockGroup, after: bytes, most: int, deadline_s: float
    ) -> list[BlockFacts]:
        """Ask the master for names when it begins, and read headers."""
        return opened.census.survey(group.name, after, most, deadline_s)

    def _discard(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], deadline_s: float
    ) -> int:
        """Remove them."""
        return opened.census.discard(group.name, keys, deadline_s)

    def _sweep(self, opened: _Opened, deadline_s: float) -> int:
        """Remove what has expired, if this process does; the pool makes room by itself."""
        return opened.census.sweep(self._wall(), deadline_s) if self._terms.sweeps else 0

    def drop(self, namespace: bytes | None = None) -> int:
        """Remove blocks of a namespace, whoever stored them, or all of this pool's name."""
        opened = self._opened
        if opened is None:
            raise EngineError(
                "asked to drop blocks, found a store that is closed", hint="open it first"
            )
        return opened.census.drop(namespace)

    def report(self) -> StoreReport:
        """What the master tells, of everybody's blocks, and what was done here."""
        opened = self._opened
        removed = self._tally.removed()
        if opened is None:
            return StoreReport(
                outcomes=self._tally.outcomes(), removed=removed, problem=CLOSED.reason
            )
        try:
            figures = self._admin.figures()
        except NotTold as error:
            problem = opened.link.problem() or str(error)
            return StoreReport(outcomes=self._tally.outcomes(), removed=removed, problem=problem)
        if opened.evicted is not None and figures.evicted > opened.evicted:
            removed["room"] = figures.evicted - opened.evicted
        return StoreReport(
            records=figures.records,
            used_bytes=figures.used_bytes,
            capacity_bytes=figures.capacity_bytes,
            outcomes=self._tally.outcomes(),
            removed=removed,
            problem=opened.link.problem(),
        )

    def _evicted(self) -> int | None:
        try:
            return self._admin.figures().evicted
        except NotTold:
            return None

    def _expires_s(self, facts: RecordFacts) -> float:
        return self._limits.expires_s(facts.written_s, facts.retention)

    def _is_expired(self, facts: RecordFacts) -> bool:
        return self._expires_s(facts) <= self._wall()
