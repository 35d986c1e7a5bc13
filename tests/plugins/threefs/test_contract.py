"""Do both stores keep the contract of kv_store?"""

from dataclasses import replace
from pathlib import Path

import pytest
from deepinfer_core.interfaces.kv_store import BlockGroup, KvStore
from deepinfer_core.stores.disk.clock import Clock
from deepinfer_core.stores.retention import Limits
from deepinfer_core.testing.contracts import KvStoreContract
from deepinfer_core.testing.contracts.kv_store_suite import key
from deepinfer_threefs.medium import PosixMedium
from deepinfer_threefs.place import StorePlace
from deepinfer_threefs.store import ThreefsStore

PAGE = 4096
LIMITS = Limits(
    capacity_bytes=100 * PAGE,
    retention_s={"agent": 3 * 86400.0, "chat": 7 * 86400.0, "state": 180.0},
    age_step_s=3600.0,
    refresh_ratio=1 / 16,
)


class Passing:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now_s = 1e6

    def __call__(self) -> float:
        return self.now_s


class TestPosixStore(KvStoreContract):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.folder, self.clock = tmp_path / "store", Passing()

    def made(self, limits: Limits = LIMITS) -> ThreefsStore:
        # Not durable: that is tested on its own, and each batch would wait for the disk. Files of
        # 16 records: so several are written, sealed and removed.
        place = StorePlace(
            folder=str(self.folder), segment_bytes=17 * PAGE, durable=False, refresh_s=0
        )
        clock = Clock(wall=self.clock, steady=self.clock)
        return ThreefsStore(place, limits, medium=PosixMedium(), clock=clock)

    @pytest.fixture
    def component(self) -> ThreefsStore:
        return self.made()

    @pytest.fixture
    def limited(self) -> ThreefsStore:
        return self.made(replace(LIMITS, quota_bytes=8 * PAGE))

    def pass_time(self, seconds: float) -> None:
        self.clock.now_s += seconds

    def again(self) -> ThreefsStore:
        return self.made()

    def flip(self, store: KvStore, group: BlockGroup, name: object, bit: int) -> None:
        assert isinstance(store, ThreefsStore)
        assert store._opened is not None
        place = store._opened.keeper.catalogue.place((group.name, key(name)))
        assert place is not None
        assert place.segment is not None
        with open(place.segment.path, "r+b") as file:
            file.seek(place.offset + bit // 8)
            (old,) = file.read(1)
            file.seek(place.offset + bit // 8)
            file.write(bytes([old ^ 1 << bit % 8]))
