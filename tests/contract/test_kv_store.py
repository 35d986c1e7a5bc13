"""Does core.memory keep the contract of kv_store?"""

from dataclasses import replace

import pytest
from deepinfer_core.interfaces.kv_store import BlockGroup, KvStore
from deepinfer_core.stores.memory import MemoryStore
from deepinfer_core.stores.retention import Limits
from deepinfer_core.testing.contracts import KvStoreContract
from deepinfer_core.testing.contracts.kv_store_suite import key

PAGE = 4096
LIMITS = Limits(
    capacity_bytes=100 * PAGE,
    retention_s={"agent": 3 * 86400.0, "chat": 7 * 86400.0, "state": 180.0},
)


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now_s = 1e6

    def __call__(self) -> float:
        return self.now_s


class TestMemoryStore(KvStoreContract):
    @pytest.fixture(autouse=True)
    def _clock(self) -> None:
        self.clock = Clock()

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
        kept = store._shelf.get((group.name, key(name)))
        assert kept is not None
        record = bytearray(kept.record)
        record[bit // 8] ^= 1 << bit % 8
        kept.record = bytes(record)
