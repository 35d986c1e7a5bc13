"""Do both stores keep the contract of kv_store?"""

from collections.abc import Iterator
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
from deepinfer_threefs.testing.usrbio import FakeUsrbio, Habits
from deepinfer_threefs.usrbio import UsrbioMedium

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
    durable = False
    """Of files on a disk that is tested on its own: here each batch would wait for it."""

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.folder, self.clock = tmp_path / "store", Passing()

    def medium(self) -> PosixMedium:
        return PosixMedium()

    def made(self, limits: Limits = LIMITS) -> ThreefsStore:
        # Files of 16 records: so several are written, sealed and removed.
        place = StorePlace(
            folder=str(self.folder), segment_bytes=17 * PAGE, durable=self.durable, refresh_s=0
        )
        clock = Clock(wall=self.clock, steady=self.clock)
        return ThreefsStore(place, limits, medium=self.medium(), clock=clock)

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


class TestUsrbioStore(TestPosixStore):
    """The same files through rings, which are small, end in any order and begin at once.

    What is written shows in a file's length when that is asked for, and not before.
    """

    durable = True

    @pytest.fixture(autouse=True)
    def _fake(self, _place: None) -> Iterator[None]:
        self.folder.parent.mkdir(exist_ok=True)
        self.fake = FakeUsrbio(self.folder.parent, Habits(delay_s=1e-4))
        self.fake.files.length_lags = True
        yield
        self.fake.files.close()

    def medium(self) -> PosixMedium:
        return UsrbioMedium(self.fake, ring_entries=5, rings=2, chunk_bytes=PAGE)
