"""Which store comes to harm, and where are its bytes?

A store is made by the name of its component, with little room, in a folder of its own. Bytes are
reached beside the store: in the memory of one that keeps records there, in files otherwise.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy

from deepinfer_core.config import load_settings
from deepinfer_core.config.resolution import resolve_components
from deepinfer_core.interfaces.kv_store import BlockGroup, KvStore
from deepinfer_core.plugin import load
from deepinfer_core.stores.disk.index import address_of
from deepinfer_core.stores.disk.store import DiskStore
from deepinfer_core.stores.erasure.store import ErasureStore
from deepinfer_core.stores.memory import MemoryStore
from deepinfer_core.stores.records import HEADER_BYTES
from deepinfer_core.stores.shelf import Kept
from deepinfer_core.stores.tiered.store import TieredStore

__all__ = ["Place", "Target", "counted", "files_of", "find_place", "make_target"]

CAPACITY_BYTES = 2048 * 4096
_DATA = 4
"""Pieces of data of a block in children: with one beside them, every read asks all children."""

_PROBE_BYTES = 64
"""Bytes at the beginning of a block that no other block has."""


class Place(Protocol):
    """A record that is kept."""

    def read(self, at: int, size: int) -> bytes:
        """Bytes of it."""

    def write(self, at: int, data: bytes) -> None:
        """Other bytes in their place."""


@dataclass(frozen=True, slots=True)
class _InMemory:
    kept: Kept[bytes]

    def read(self, at: int, size: int) -> bytes:
        return bytes(self.kept.record[at : at + size])

    def write(self, at: int, data: bytes) -> None:
        record = bytearray(self.kept.record)
        record[at : at + len(data)] = data
        self.kept.record = bytes(record)


@dataclass(frozen=True, slots=True)
class _InFile:
    path: Path
    start: int

    def read(self, at: int, size: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(self.start + at)
            return file.read(size)

    def write(self, at: int, data: bytes) -> None:
        with self.path.open("r+b") as file:
            file.seek(self.start + at)
            file.write(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A store that is open or was.

    Attributes:
        name: of the component.
        store: made with little room.
        parts: what it consists of, the fastest first; itself if it is one piece.
        folder: where files are.
    """

    name: str
    store: KvStore
    parts: tuple[KvStore, ...]
    folder: Path

    @property
    def is_tiered(self) -> bool:
        """Whether a faster part hides what slower ones have."""
        return isinstance(self.store, TieredStore)

    @property
    def is_persistent(self) -> bool:
        """Whether it has files."""
        return self.store.capabilities.is_persistent


def counted(part: KvStore) -> int:
    """Blocks of which a part of a target says that they were not what they should be."""
    outcomes = part.report().outcomes
    return outcomes.get("corrupt", 0) + outcomes.get("version", 0)


def make_target(name: str, folder: Path) -> Target:
    """The component of that name, not open yet.

    Raises:
        DeepInferError: there is none, or it cannot be made.
    """
    settings = load_settings(
        environ={},
        api={
            # A process that is to be killed has little to load.
            "plugins.autoload": not name.startswith("core."),
            "components.kv_store.use": name,
            "components.kv_store.options": _options(name, folder),
        },
    )
    store: KvStore = load(resolve_components(settings).require(), "kv_store")
    parts: tuple[KvStore, ...] = (store,)
    if isinstance(store, TieredStore):
        parts = tuple(tier.store for tier in store._tiers)
    elif isinstance(store, ErasureStore):
        parts = tuple(child for _, child in store._stores)
    return Target(name=name, store=store, parts=parts, folder=folder)


def _options(name: str, folder: Path) -> Mapping[str, Any]:
    room = {"capacity_bytes": CAPACITY_BYTES, "young_s": 0.0}
    if name == "core.memory":
        return room
    if name == "core.tiered":
        lower = {"use": "core.disk", "options": _options("core.disk", folder)}
        return {"tiers": [{"use": "core.memory", "options": room}, lower]}
    if name == "core.erasure":
        children = [
            {"use": "core.disk", "options": _options("core.disk", folder / str(number))}
            for number in range(_DATA + 1)
        ]
        return {"data": _DATA, "parity": 1, "codec": "numpy", "children": children}
    return {**room, "folder": str(folder / "store"), "durable": False}


def find_place(part: KvStore, group: BlockGroup, key: bytes, data: bytes, folder: Path) -> Place:
    """Where a part of a target keeps a block that was stored once and never moved.

    Raises:
        LookupError: nowhere.
    """
    if isinstance(part, MemoryStore):
        assert part._opened is not None
        kept = part._opened.shelf.get((group.name, key))
        if kept is None:
            raise LookupError("not in memory")
        return _InMemory(kept)
    if isinstance(part, DiskStore):
        return _in_map(part, address_of(group.name, key))
    for path in sorted(files_of(folder), key=lambda one: one.stat().st_mtime, reverse=True):
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as found:
            at = found.rfind(data[:_PROBE_BYTES])
        if at >= HEADER_BYTES:
            return _InFile(path, at - HEADER_BYTES)
    raise LookupError("in no file")


def _in_map(store: DiskStore, address: bytes) -> Place:
    """The record that the index means: the file may have copies that nobody looks at any more."""
    assert store._opened is not None
    path = store._folder / "data.mdb"
    with store._opened.environment.reading() as txn:
        record = store._opened.reader._index.record(txn, address)
        if record is None:
            raise LookupError("not in the index")
        place = numpy.frombuffer(record, dtype=numpy.uint8).ctypes.data
        with open("/proc/self/maps") as maps:
            [first] = [line for line in maps if line.rstrip().endswith(str(path))]
    return _InFile(path, place - int(first.split("-")[0], 16))


def files_of(folder: Path) -> Iterator[Path]:
    """Files that are not empty."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.stat().st_size:
            yield path
