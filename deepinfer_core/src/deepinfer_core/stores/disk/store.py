"""How does one process keep blocks on a disk, and how do others read them?

Blocks are records in a memory map (LMDB): reading copies straight from the file's cache, or not at
all, and a commit is whole or absent, whatever ends the process. Uses are noted in memory and
written with the next blocks, so that reading never waits for the disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from deepinfer_core.errors import ConfigError, EngineError, OtherFormat
from deepinfer_core.interfaces.kv_store import (
    BlockGroup,
    Lent,
    Outcome,
    StoreCapabilities,
    StoreItem,
    StoreReport,
)
from deepinfer_core.interfaces.kv_upkeep import BlockFacts
from deepinfer_core.stores.calls import CLOSED, HIT, Tally, groups_by_name
from deepinfer_core.stores.disk.clock import Clock
from deepinfer_core.stores.disk.environment import (
    RENEW,
    Environment,
    OtherForm,
    Unusable,
    is_damage,
)
from deepinfer_core.stores.disk.index import AGE_STEP_S, Index, address_of
from deepinfer_core.stores.disk.reader import Reader
from deepinfer_core.stores.disk.turns import Turns
from deepinfer_core.stores.disk.writer import Writer
from deepinfer_core.stores.guarded import GuardedStore
from deepinfer_core.stores.retention import Limits, LimitsOptions, limits_of

if TYPE_CHECKING:
    from deepinfer_core.plugin import BuildContext

__all__ = ["DiskStore", "build"]

_READS_ONLY = Outcome(status="unavailable", reason="this process does not write")

_INDEX_BYTES = 4 << 20
"""Of the map, beside a tenth of the capacity, for the index and for pages that are being freed."""

_REFRESH_RATIO = 1 / 16
"""A block in constant use costs one write in 4.5 hours (agents) or 10.5 (chats)."""


class DiskOptions(LimitsOptions, Protocol):
    """What the configuration says; see ``config.store_options``."""

    @property
    def folder(self) -> str:
        """Where blocks are kept."""

    @property
    def writes(self) -> bool:
        """Whether this process is the one that writes."""

    @property
    def durable(self) -> bool:
        """Whether blocks are on the disk before they can be found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """What there is only while the store is open."""

    groups: Mapping[str, BlockGroup]
    environment: Environment
    reader: Reader
    peeker: Reader
    writer: Writer | None


class DiskStore(GuardedStore[_Opened]):
    """Blocks in one folder.

    Args:
        folder: of this store alone; the process that writes makes it.
        limits: what may be kept; ``age_step_s`` is that of the disk.
        writes: whether this process is the one that writes.
        durable: whether blocks are on the disk before they can be found. Otherwise the end of the
            process loses none either, but a power cut may lose the store.
        clock: for ages.
    """

    def __init__(
        self,
        folder: Path,
        limits: Limits,
        *,
        writes: bool = True,
        durable: bool = True,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(limits)
        if limits.age_step_s != AGE_STEP_S:
            raise ValueError(f"ages on a disk count in {AGE_STEP_S} s, found {limits.age_step_s}")
        self._folder, self._limits = folder, limits
        self._writes, self._durable = writes, durable
        self._clock = clock or Clock()
        self._turns = Turns()

    @property
    def capabilities(self) -> StoreCapabilities:
        """Blocks stay, and are lent without a copy."""
        return StoreCapabilities(
            is_persistent=True,
            is_zero_copy=True,
            batch_blocks=64,
            max_block_bytes=self._limits.low_bytes,
        )

    def drop(self, namespace: bytes | None = None) -> int:
        """Remove blocks of a namespace, or all."""
        opened = self._opened
        if opened is None or opened.writer is None:
            raise EngineError(
                "asked to drop blocks, found a store that this process does not write to",
                hint="ask the process that writes",
            )
        return opened.writer.drop(namespace)

    def report(self) -> StoreReport:
        """What there is to tell."""
        opened = self._opened
        records = used_bytes = 0
        problem = CLOSED.reason
        if opened is not None:
            try:
                records, used_bytes = opened.reader.sizes()
                problem = ""
            except Unusable as error:
                problem = str(error)
            if opened.environment.damage:
                problem = f"{opened.environment.damage}: {RENEW}"
        return StoreReport(
            records=records,
            used_bytes=used_bytes,
            capacity_bytes=self._limits.capacity_bytes,
            high_bytes=self._limits.high_bytes,
            outcomes=self._tally.outcomes(),
            removed=self._tally.removed(),
            ages=self._tally.ages(),
            problem=problem,
        )

    def _start(self, groups: Sequence[BlockGroup], tally: Tally) -> _Opened:
        """Map the file."""
        found = groups_by_name(groups, self._limits)
        capacity_bytes = self._limits.capacity_bytes
        environment = Environment(
            self._folder,
            map_bytes=capacity_bytes + capacity_bytes // 10 + _INDEX_BYTES,
            writes=self._writes,
            durable=self._durable,
        )
        try:
            index = Index(environment, self._limits, writes=self._writes)
            writer = None
            if self._writes:
                writer = Writer(environment, index, self._limits, self._clock, tally)
            reader = Reader(environment, index, writer.uses if writer else None)
        except Unusable as error:
            environment.close()
            kind = OtherFormat if isinstance(error, OtherForm) else ConfigError
            raise kind(
                f"the store in {self._folder} cannot be used: {error}",
                hint=RENEW
                if is_damage(error)
                else "the process that writes makes and renews it; check the folder",
            ) from error
        return _Opened(
            groups=found,
            environment=environment,
            reader=reader,
            peeker=Reader(environment, index, None),
            writer=writer,
        )

    def _stop(self, opened: _Opened) -> None:
        """Wait for calls and loans, then unmap the file."""
        opened.environment.close()

    def _find(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], deadline_s: float
    ) -> list[Outcome]:
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
        reader = opened.reader if is_use else opened.peeker
        with self._turns.taken(deadline_s):
            outcomes = reader.load(group, keys, destinations, deadline_s)
        self._remove_damaged(opened, group, keys, outcomes, deadline_s)
        return outcomes

    def _lend(
        self,
        stack: ExitStack,
        opened: _Opened,
        group: BlockGroup,
        keys: Sequence[bytes],
        deadline_s: float,
    ) -> list[Lent]:
        """Show blocks in the map; the damaged ones are removed when the others are given back."""
        outcomes: list[Outcome] = []
        stack.callback(self._remove_damaged, opened, group, keys, outcomes, deadline_s)
        lent = opened.reader.lend(stack, group, keys, deadline_s)
        outcomes += [one.outcome for one in lent]
        return lent

    def _store(
        self, opened: _Opened, group: BlockGroup, items: Sequence[StoreItem], deadline_s: float
    ) -> list[Outcome]:
        if opened.writer is None:
            return [_READS_ONLY] * len(items)
        return opened.writer.keep(group, items, deadline_s)

    def _touch(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], retention: str
    ) -> None:
        """Note uses for the next time that something is written."""
        if opened.writer is not None:
            for key in keys:
                opened.writer.uses.note(address_of(group.name, key), retention)

    def _describe(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], deadline_s: float
    ) -> list[BlockFacts | None]:
        return opened.reader.describe(group, keys)

    def _survey(
        self, opened: _Opened, group: BlockGroup, after: bytes, most: int, deadline_s: float
    ) -> list[BlockFacts]:
        return opened.reader.survey(group, after, most)

    def _discard(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], deadline_s: float
    ) -> int:
        return opened.writer.discard(group, keys, deadline_s) if opened.writer else 0

    def _sweep(self, opened: _Opened, deadline_s: float) -> int:
        """Nothing in a process that only reads."""
        return opened.writer.sweep(deadline_s) if opened.writer else 0

    def _remove_damaged(
        self,
        opened: _Opened,
        group: BlockGroup,
        keys: Sequence[bytes],
        outcomes: Sequence[Outcome],
        deadline_s: float,
    ) -> None:
        if opened.writer is None or outcomes.count(HIT) == len(outcomes):
            return
        damaged = [
            key
            for key, outcome in zip(keys, outcomes, strict=False)
            if outcome.status in ("corrupt", "version")
        ]
        if damaged:
            opened.writer.remove_damaged(group, damaged, deadline_s)


def build(options: DiskOptions, context: BuildContext) -> DiskStore:
    """Build the component; nothing is touched until it is opened."""
    return DiskStore(
        Path(options.folder),
        limits_of(options, age_step_s=AGE_STEP_S, refresh_ratio=_REFRESH_RATIO),
        writes=options.writes,
        durable=options.durable,
    )
