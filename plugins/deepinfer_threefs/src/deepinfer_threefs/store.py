"""How do machines that share a folder keep blocks in it, and find each other's?

Each process appends records to files of its own and reads those of all. What lies where is kept in
memory, made from the files, and brought up to date by looks at them (``scanner``). Machines agree
upon nothing: whatever two do at once can only cost a block.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
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
from deepinfer_core.stores.calls import CLOSED, HIT, MISS, Tally, groups_by_name
from deepinfer_core.stores.disk.clock import Clock
from deepinfer_core.stores.guarded import GuardedStore
from deepinfer_core.stores.retention import Limits

from deepinfer_threefs.keeping import Keeper
from deepinfer_threefs.medium import PosixMedium
from deepinfer_threefs.place import StorePlace
from deepinfer_threefs.reading import Reader

__all__ = ["ThreefsStore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """What there is only while the store is open."""

    groups: Mapping[str, BlockGroup]
    keeper: Keeper
    reader: Reader
    looks: threading.Thread
    is_over: threading.Event


class ThreefsStore(GuardedStore[_Opened]):
    """Blocks in a folder that machines share.

    Args:
        place: where and how.
        limits: what all of them together may keep.
        medium: how files are read and written.
        clock: for ages.
    """

    def __init__(
        self,
        place: StorePlace,
        limits: Limits,
        *,
        medium: PosixMedium,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(limits)
        self._place, self._limits, self._medium = place, limits, medium
        self._clock = clock or Clock()

    @property
    def capabilities(self) -> StoreCapabilities:
        """Blocks stay, and are copied."""
        return StoreCapabilities(
            is_persistent=True,
            is_zero_copy=False,
            batch_blocks=64,
            max_block_bytes=self._limits.low_bytes,
            is_remote=True,
        )

    def look(self, *, deadline_s: float) -> None:
        """Find what others have written, now."""
        opened = self._opened
        if opened is not None:
            opened.keeper.look(deadline_s)

    def drop(self, namespace: bytes | None = None) -> int:
        """Remove blocks of a namespace, or all, and tell the others to."""
        opened = self._opened
        if opened is None:
            raise EngineError("asked to drop blocks, found the store closed", hint="open it before")
        try:
            return opened.keeper.drop(namespace)
        except OSError as error:
            raise EngineError(
                f"asked to drop blocks, found the folder unusable: {error.strerror or error}",
                hint="drop them again once it can be written to",
            ) from error

    def report(self) -> StoreReport:
        """What there is to tell."""
        opened = self._opened
        records = used_bytes = 0
        problem = CLOSED.reason
        work: Mapping[str, int] = {}
        if opened is not None:
            catalogue = opened.keeper.catalogue
            with catalogue.lock:
                records, used_bytes = len(catalogue.shelf), catalogue.shelf.used_bytes
            problem, work = opened.keeper.problem, opened.keeper.work
        return StoreReport(
            records=records,
            used_bytes=used_bytes,
            capacity_bytes=self._limits.capacity_bytes,
            high_bytes=self._limits.high_bytes,
            outcomes=self._tally.outcomes(),
            removed=self._tally.removed(),
            ages=self._tally.ages(),
            problem=problem,
            work=work,
        )

    def _start(self, groups: Sequence[BlockGroup], tally: Tally) -> _Opened:
        """Look at all files that are there."""
        found = groups_by_name(groups, self._limits)
        if os.path.isfile(self._place.folder):
            raise ConfigError(
                f"the store cannot be opened: {self._place.folder} is a file, not a folder",
                hint="name a folder, or remove the file",
            )
        try:
            keeper = Keeper(
                self._place,
                found,
                self._limits,
                medium=self._medium,
                clock=self._clock,
                tally=tally,
            )
        except OSError as error:
            raise ConfigError(
                f"the store in {self._place.folder} cannot be opened: {error.strerror or error}",
                hint="check the folder, its mount and its permissions",
            ) from error
        is_over = threading.Event()
        looks = threading.Thread(
            target=self._look_on,
            args=(keeper, is_over),
            name="deepinfer-threefs-looks",
            daemon=True,
        )
        looks.start()
        return _Opened(
            groups=found,
            keeper=keeper,
            reader=Reader(keeper.catalogue, self._medium),
            looks=looks,
            is_over=is_over,
        )

    def _stop(self, opened: _Opened) -> None:
        """Seal what this process wrote."""
        opened.is_over.set()
        opened.looks.join()
        opened.keeper.end()

    def _find(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], deadline_s: float
    ) -> list[Outcome]:
        """Look blocks up in memory."""
        catalogue = opened.keeper.catalogue
        with catalogue.lock:
            return [HIT if catalogue.place((group.name, key)) else MISS for key in keys]

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
        """Read blocks, each checked on the way."""
        return opened.reader.load(group, keys, destinations, deadline_s, is_use=is_use)

    def _store(
        self, opened: _Opened, group: BlockGroup, items: Sequence[StoreItem], deadline_s: float
    ) -> list[Outcome]:
        """Append blocks to a file of this process."""
        return opened.keeper.keep(group, items, deadline_s)

    def _touch(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], retention: str
    ) -> None:
        """Note uses for the next time that something is written."""
        catalogue = opened.keeper.catalogue
        with catalogue.lock:
            for key in keys:
                catalogue.use((group.name, key), retention)

    def _describe(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], deadline_s: float
    ) -> list[BlockFacts | None]:
        """What blocks are kept under."""
        catalogue = opened.keeper.catalogue
        with catalogue.lock:
            return [catalogue.shelf.facts_of((group.name, key)) for key in keys]

    def _survey(
        self, opened: _Opened, group: BlockGroup, after: bytes, most: int, deadline_s: float
    ) -> list[BlockFacts]:
        """Blocks in order of their keys."""
        catalogue = opened.keeper.catalogue
        with catalogue.lock:
            return catalogue.shelf.behind(group.name, after, most)

    def _discard(
        self, opened: _Opened, group: BlockGroup, keys: Sequence[bytes], deadline_s: float
    ) -> int:
        """Remove single blocks, and tell the others to."""
        return opened.keeper.discard({(group.name, key) for key in keys}, deadline_s)

    def _sweep(self, opened: _Opened, deadline_s: float) -> int:
        """Look for what is new, remove what has expired, make room, and give it back."""
        return opened.keeper.sweep(deadline_s)

    def _look_on(self, keeper: Keeper, is_over: threading.Event) -> None:
        """Look now and then; never, if only when the store is opened and swept."""
        while not is_over.wait(self._place.refresh_s or None):
            keeper.look(time.monotonic() + self._place.refresh_s)
