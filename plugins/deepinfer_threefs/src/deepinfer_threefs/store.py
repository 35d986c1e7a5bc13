"""How do machines that share a folder keep blocks in it, and find each other's?

Each process appends records to files of its own and reads those of all. What lies where is kept in
memory, made from the files, and brought up to date by looks at them (``scanner``). Machines agree
upon nothing: whatever two do at once can only cost a block.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deepinfer_core.errors import ConfigError, EngineError
from deepinfer_core.interfaces.kv_store import (
    BlockGroup,
    KvStore,
    Outcome,
    StoreCapabilities,
    StoreItem,
    StoreReport,
)
from deepinfer_core.stores.calls import (
    CLOSED,
    HIT,
    LATE,
    MISS,
    Tally,
    group_named,
    groups_by_name,
    is_late,
    require_class,
    require_destinations,
    require_items,
    require_keys,
)
from deepinfer_core.stores.disk.clock import Clock
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
    looks: threading.Thread | None
    is_over: threading.Event


class ThreefsStore(KvStore):
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
        self._place, self._limits, self._medium = place, limits, medium
        self._clock = clock or Clock()
        self._tally = Tally()
        self._opened: _Opened | None = None

    @property
    def capabilities(self) -> StoreCapabilities:
        """Blocks stay, and are copied."""
        return StoreCapabilities(
            is_persistent=True,
            is_zero_copy=False,
            batch_blocks=64,
            max_block_bytes=self._limits.low_bytes,
        )

    @property
    def groups(self) -> Mapping[str, BlockGroup]:
        """What it was opened for."""
        return self._opened.groups if self._opened else {}

    def open(self, groups: Sequence[BlockGroup]) -> None:
        """Look at all files that are there."""
        if self._opened is not None:
            raise ValueError("the store is open")
        found = groups_by_name(groups, self._limits)
        tally = Tally()
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
        looks = None
        if self._place.refresh_s:
            looks = threading.Thread(
                target=self._look_on,
                args=(keeper, is_over),
                name="deepinfer-threefs-looks",
                daemon=True,
            )
        self._tally = tally
        self._opened = _Opened(
            groups=found,
            keeper=keeper,
            reader=Reader(keeper.catalogue, self._medium),
            looks=looks,
            is_over=is_over,
        )
        if looks is not None:
            looks.start()

    def close(self) -> None:
        """Seal what this process wrote."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.is_over.set()
            if opened.looks is not None:
                opened.looks.join()
            opened.keeper.end()

    def look(self, *, deadline_s: float) -> None:
        """Find what others have written, now."""
        opened = self._opened
        if opened is not None:
            opened.keeper.look(deadline_s)

    def find(self, group: str, keys: Sequence[bytes], *, deadline_s: float) -> list[Outcome]:
        """Look blocks up in memory."""
        opened = self._opened
        if opened is None:
            return [CLOSED] * len(keys)
        group_named(opened.groups, group)
        require_keys(keys)
        if is_late(deadline_s):
            return [LATE] * len(keys)
        catalogue = opened.keeper.catalogue
        with catalogue.lock:
            return [HIT if catalogue.place((group, key)) else MISS for key in keys]

    def load(
        self,
        group: str,
        keys: Sequence[bytes],
        destinations: Sequence[bytearray | memoryview],
        *,
        deadline_s: float,
    ) -> list[Outcome]:
        """Read blocks, each checked on the way."""
        opened = self._opened
        if opened is None:
            return self._tally.count([CLOSED] * len(keys))
        known = group_named(opened.groups, group)
        require_keys(keys)
        require_destinations(known, keys, destinations)
        return self._tally.count(opened.reader.load(known, keys, destinations, deadline_s))

    def store(self, group: str, items: Sequence[StoreItem], *, deadline_s: float) -> list[Outcome]:
        """Append blocks to a file of this process."""
        opened = self._opened
        if opened is None:
            return self._tally.count([CLOSED] * len(items))
        known = group_named(opened.groups, group)
        require_items(known, items, self._limits)
        return self._tally.count(opened.keeper.keep(known, items, deadline_s))

    def touch(self, group: str, keys: Sequence[bytes], *, retention: str = "") -> None:
        """Note uses for the next time that something is written."""
        opened = self._opened
        if opened is None:
            return
        group_named(opened.groups, group)
        require_keys(keys)
        require_class(retention, self._limits)
        with opened.keeper.catalogue.lock:
            for key in keys:
                opened.keeper.catalogue.use((group, key), retention)

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

    def sweep(self, *, deadline_s: float) -> int:
        """Look for what is new, remove what has expired, make room, and give it back."""
        opened = self._opened
        return opened.keeper.sweep(deadline_s) if opened else 0

    def report(self) -> StoreReport:
        """What there is to tell."""
        opened = self._opened
        records = used_bytes = 0
        problem = CLOSED.reason
        if opened is not None:
            catalogue = opened.keeper.catalogue
            with catalogue.lock:
                records, used_bytes = len(catalogue.shelf), catalogue.shelf.used_bytes
            problem = opened.keeper.problem
        return StoreReport(
            records=records,
            used_bytes=used_bytes,
            capacity_bytes=self._limits.capacity_bytes,
            outcomes=self._tally.outcomes(),
            removed=self._tally.removed(),
            problem=problem,
        )

    def _look_on(self, keeper: Keeper, is_over: threading.Event) -> None:
        while not is_over.wait(self._place.refresh_s):
            keeper.look(time.monotonic() + self._place.refresh_s)
