"""Do core.memory and core.disk keep the contract of kv_store?"""

from dataclasses import replace
from pathlib import Path

import pytest
from deepinfer_core.interfaces.kv_store import BlockGroup, KvStore
from deepinfer_core.stores.disk.clock import Clock
from deepinfer_core.stores.disk.index import AGE_STEP_S
from deepinfer_core.stores.disk.store import DiskStore
from deepinfer_core.stores.memory import MemoryStore
from deepinfer_core.stores.retention import Limits
from deepinfer_core.testing.contracts import KvStoreContract
from deepinfer_core.testing.contracts.kv_store_suite import key
from deepinfer_core.testing.faulty_store import Passing, flip_in_memory, flip_on_disk

PAGE = 4096
LIMITS = Limits(
    capacity_bytes=100 * PAGE,
    retention_s={"agent": 3 * 86400.0, "chat": 7 * 86400.0, "state": 180.0},
)


class TestMemoryStore(KvStoreContract):
    @pytest.fixture(autouse=True)
    def _clock(self) -> None:
        self.clock = Passing()

    @pytest.fixture
    def component(self) -> MemoryStore:
        return MemoryStore(LIMITS, clock=self.clock)

    @pytest.fixture
    def limited(self) -> MemoryStore:
        return MemoryStore(replace(LIMITS, quota_bytes=8 * PAGE), clock=self.clock)

    def pass_time(self, seconds: float) -> None:
        self.clock.now_s += seconds

    def flip(self, store: KvStore, group: BlockGroup, name: object, bit: int) -> None:
        assert isinstance(store, MemoryStore)
        flip_in_memory(store, group, key(name), bit)


class TestDiskStore(KvStoreContract):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.folder, self.clock = tmp_path / "store", Passing()

    def disk(self, limits: Limits = LIMITS) -> DiskStore:
        clock = Clock(wall=self.clock, steady=self.clock)
        # Not durable: that is tested on its own, and each commit would wait for the disk.
        limits = replace(limits, age_step_s=AGE_STEP_S, refresh_ratio=1 / 16)
        return DiskStore(self.folder, limits, durable=False, clock=clock)

    @pytest.fixture
    def component(self) -> DiskStore:
        return self.disk()

    @pytest.fixture
    def limited(self) -> DiskStore:
        return self.disk(replace(LIMITS, quota_bytes=8 * PAGE))

    def pass_time(self, seconds: float) -> None:
        self.clock.now_s += seconds

    def again(self) -> DiskStore:
        return self.disk()

    def flip(self, store: KvStore, group: BlockGroup, name: object, bit: int) -> None:
        assert isinstance(store, DiskStore)
        flip_on_disk(store, group, key(name), bit)
