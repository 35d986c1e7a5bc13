"""How does a store misbehave on demand, in a process that a test cannot reach?

A file says how: a JSON list of rules, read at each call. A rule names a call (``find``, ``load``,
``store``), what it does (``raise``, ``late``, ``gone``, ``short``, ``hang``, or a number of seconds
that it takes) and perhaps the key, in hexadecimal, that a call must ask for. A call that hangs goes
on when the file no longer says so. Without a file it is a plain store in memory, or on a disk.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from deepinfer_core.config.store_options import DiskStoreOptions, MemoryStoreOptions
from deepinfer_core.interfaces.kv_store import KvStore, Outcome, StoreCapabilities, StoreItem
from deepinfer_core.plugin import BuildContext, ComponentSpec, ModelNeeds, Resolved
from deepinfer_core.plugin.resolved import Pick
from deepinfer_core.stores import memory
from deepinfer_core.testing.faulty_store import FaultyStore

__all__ = ["UnrulyOptions", "UnrulyStore", "build", "resolved_unruly"]

_POLL_S = 0.01
_LATE = Outcome(status="timeout", reason="told to be late")
_GONE = Outcome(status="unavailable", reason="told to be gone")


class UnrulyOptions(BaseModel):
    """Options of the store.

    Attributes:
        rules: the file; empty: none.
        folder: where blocks are kept on a disk; empty: in memory.
        is_persistent: what it says of itself.
        is_remote: whether it says that other machines answer, and that blocks come from their
            memory.
        log: file that gets a line for each call; empty: none.
    """

    rules: str = ""
    folder: str = ""
    is_persistent: bool = False
    is_remote: bool = False
    log: str = ""


class UnrulyStore(FaultyStore):
    """A store that does what a file says.

    Args:
        inner: keeps the blocks.
        options: see there.
    """

    def __init__(self, inner: KvStore, options: UnrulyOptions) -> None:
        super().__init__(inner)
        self._options = options

    @property
    def capabilities(self) -> StoreCapabilities:
        """Those of a small store."""
        return StoreCapabilities(
            is_persistent=self._options.is_persistent,
            is_zero_copy=False,
            batch_blocks=4,
            max_block_bytes=self.inner.capabilities.max_block_bytes,
            is_remote=self._options.is_remote,
        )

    def find(self, group: str, keys: Sequence[bytes], *, deadline_s: float) -> list[Outcome]:
        """Look, or misbehave."""
        told = self._misbehave("find", keys)
        return told or super().find(group, keys, deadline_s=deadline_s)

    def load(
        self,
        group: str,
        keys: Sequence[bytes],
        destinations: Sequence[bytearray | memoryview],
        *,
        deadline_s: float,
    ) -> list[Outcome]:
        """Load, or misbehave."""
        told = self._misbehave("load", keys)
        outcomes = told or super().load(group, keys, destinations, deadline_s=deadline_s)
        is_remote = self._options.is_remote
        return [replace(one, is_remote=is_remote and one.status == "hit") for one in outcomes]

    def store(self, group: str, items: Sequence[StoreItem], *, deadline_s: float) -> list[Outcome]:
        """Store, or misbehave."""
        told = self._misbehave("store", [one.key for one in items])
        return told or super().store(group, items, deadline_s=deadline_s)

    def touch(self, group: str, keys: Sequence[bytes], *, retention: str = "") -> None:
        """Note uses."""
        self._log(f"touch {len(keys)} {retention}")
        super().touch(group, keys, retention=retention)

    def sweep(self, *, deadline_s: float) -> int:
        """Sweep."""
        self._log("sweep")
        return super().sweep(deadline_s=deadline_s)

    def _log(self, line: str) -> None:
        if self._options.log:
            with open(self._options.log, "a", encoding="ascii") as file:
                file.write(f"{line}\n")

    def _rule(self, call: str, keys: Sequence[bytes]) -> Any:
        """What the file says of a call; None: nothing."""
        file = Path(self._options.rules)
        if not (self._options.rules and file.exists()):
            return None
        asked = {one.hex() for one in keys}
        for rule in json.loads(file.read_text() or "[]"):
            if rule["call"] == call and ("key" not in rule or rule["key"] in asked):
                return rule["does"]
        return None

    def _misbehave(self, call: str, keys: Sequence[bytes]) -> list[Outcome]:
        """Outcomes that replace the store's own; none: they do not."""
        self._log(f"{call} {len(keys)}")
        does = self._rule(call, keys)
        if does == "raise":
            raise RuntimeError("told to raise")
        if does == "late":
            return [_LATE] * len(keys)
        if does == "gone":
            return [_GONE] * len(keys)
        if does == "short":
            return [_GONE] * (len(keys) + 1)
        if isinstance(does, int | float):
            time.sleep(does)
        while self._rule(call, keys) == "hang":
            time.sleep(_POLL_S)
        return []


def build(options: UnrulyOptions, context: BuildContext) -> UnrulyStore:
    """Build the component."""
    if options.folder:
        from deepinfer_core.stores.disk import store as disk

        place = DiskStoreOptions(folder=options.folder, capacity_bytes=64 << 20, durable=False)
        return UnrulyStore(disk.build(place, context), options)
    size = MemoryStoreOptions(capacity_bytes=64 << 20, young_s=0.0)
    return UnrulyStore(memory.build(size, context), options)


def resolved_unruly(**settings: object) -> Resolved:
    """A choice of this store, as a fetcher is given it."""
    spec = ComponentSpec(
        kind="kv_store",
        name="test.unruly",
        slots=("kv_store",),
        contract=1,
        factory=f"{__name__}:build",
        options=f"{__name__}:UnrulyOptions",
    )
    pick = Pick(kind="kv_store", slot="kv_store", spec=spec, settings=settings, distribution="test")
    context = BuildContext(device="cpu", needs=ModelNeeds())
    return Resolved(context=context, picks=(pick,), distributions=())
