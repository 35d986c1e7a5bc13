"""What do tests of the stores share: folders with several stores, time, and a side of a ring."""

from __future__ import annotations

import mmap
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.stores.disk.clock import Clock
from deepinfer_core.stores.retention import Limits
from deepinfer_core.testing.contracts.kv_store_suite import block, key
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER, STATES
from deepinfer_threefs.medium import PosixMedium
from deepinfer_threefs.place import StorePlace
from deepinfer_threefs.store import ThreefsStore
from deepinfer_threefs.testing.usrbio import FakeIoring, FakeUsrbio

PAGE = 4096
LIMITS = Limits(
    capacity_bytes=200 * PAGE,
    retention_s={"agent": 3 * 86400.0, "chat": 7 * 86400.0, "state": 180.0},
    age_step_s=3600.0,
    refresh_ratio=1 / 16,
)


@dataclass
class Folder:
    """A folder that stores of several machines share."""

    path: Path
    now_s: float = 1e6
    stores: list[ThreefsStore] = field(default_factory=list)

    def open(self, medium: PosixMedium | None = None, **changes: Any) -> ThreefsStore:
        """A store of another machine; ``changes`` are of its place, or of its limits."""
        of_place = {"segment_bytes": 17 * PAGE, "durable": False, "refresh_s": 0}
        of_limits = {}
        for name, value in changes.items():
            (of_limits if hasattr(LIMITS, name) else of_place)[name] = value
        store = ThreefsStore(
            StorePlace(folder=str(self.path), **of_place),
            replace(LIMITS, **of_limits),
            medium=medium or PosixMedium(),
            clock=Clock(wall=lambda: self.now_s, steady=lambda: self.now_s),
        )
        store.open([BLOCKS, STATES])
        self.stores.append(store)
        return store

    def files(self) -> list[Path]:
        """Segment files."""
        return sorted(self.path.glob("*/*/*.seg"))

    def allocated_bytes(self) -> int:
        """That segment files take on the disk."""
        return sum(512 * file.stat().st_blocks for file in self.files())


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path / "store")
    yield made
    for store in made.stores:
        store.close()


class Asks:
    """What tests ask of a store."""

    @staticmethod
    def write(store: ThreefsStore, *items: Any) -> list[str]:
        return [one.status for one in store.store("blocks", items, deadline_s=FOREVER)]

    @staticmethod
    def found(store: ThreefsStore, *names: object) -> list[str]:
        keys = [key(name) for name in names]
        return [one.status for one in store.find("blocks", keys, deadline_s=FOREVER)]

    @staticmethod
    def read(store: ThreefsStore, *names: object) -> list[str]:
        """What became of reading blocks, each of which is compared with what was stored."""
        buffers = [bytearray(BLOCKS.block_bytes) for _ in names]
        outcomes = store.load("blocks", [key(name) for name in names], buffers, deadline_s=FOREVER)
        for name, outcome, buffer in zip(names, outcomes, buffers, strict=True):
            assert outcome.status != "hit" or buffer == block(name), "wrong bytes"
        return [one.status for one in outcomes]


@pytest.fixture
def ask() -> type[Asks]:
    return Asks


class Side:
    """What a program has: memory, a file of sixteen numbered pages, and a ring."""

    def __init__(self, mount: Path) -> None:
        self.fake = FakeUsrbio(mount)
        self.memory = memoryview(mmap.mmap(-1, 16 * PAGE))
        self.iov = self.iovec()
        self.path = mount / "file"
        self.path.write_bytes(b"".join(bytes([page + 1]) * PAGE for page in range(16)))
        self.fd = os.open(self.path, os.O_RDWR)
        self.fake.register_fd(self.fd)

    def iovec(self, block_size: int = 0, *, linked: bool = True) -> Any:
        name = str(uuid.uuid4())
        suffix = f".b{block_size}" if block_size else ""
        if linked:
            os.symlink("/dev/shm/any", f"{self.fake.mount}/3fs-virt/iovs/{name}{suffix}")
        return self.fake.iovec(self.memory, name, self.fake.mount, block_size)

    def ring(self, entries: int = 16, **options: Any) -> FakeIoring:
        return self.fake.ioring(self.fake.mount, entries, **options)

    def page(self, number: int) -> Any:
        return self.iov[number * PAGE : (number + 1) * PAGE]

    def read(self, ring: FakeIoring, *pages: int) -> None:
        for page in pages:
            ring.prepare(self.page(page), True, self.fd, page * PAGE, page)

    @staticmethod
    def ended(ring: FakeIoring, most: int = 16) -> list[Any]:
        """Numbers of the operations that have ended."""
        return [part.userdata for part in ring.wait(max_results=most, timeout=timedelta(0))]

    @staticmethod
    def number(call: Any, *args: Any, **options: Any) -> int:
        """The error that a call raises."""
        try:
            call(*args, **options)
        except OSError as error:
            return error.errno or 0
        pytest.fail("it raised nothing")


@pytest.fixture
def side(tmp_path: Path) -> Iterator[Side]:
    made = Side(tmp_path)
    yield made
    os.close(made.fd)
    made.fake.files.close()
