"""Does cluster.mooncake keep the contract of kv_store, with a pool that behaves like Mooncake's?

Left out is what the pool decides, not the store: who goes when it is full. And what its objects,
which never change, cannot note: uses, and a longer class. ``test_retention.py`` has what is kept.
"""

from collections.abc import Callable

import pytest
from deepinfer_cluster.store import MooncakeStore
from deepinfer_cluster.testing.fake_pool import FakePool
from deepinfer_core.interfaces.kv_store import BlockGroup, KvStore
from deepinfer_core.testing.contracts import KvStoreContract
from deepinfer_core.testing.contracts.kv_store_suite import key


class TestMooncakeStore(KvStoreContract):
    test_every_use_puts_off_the_end = None
    test_of_two_classes_the_longer_one_holds = None
    test_more_than_fits_makes_the_oldest_go = None
    test_of_one_age_ends_of_texts_go_before_beginnings = None
    test_new_blocks_are_not_removed_for_newer_ones = None
    test_a_sweep_makes_room_before_it_is_needed = None

    @pytest.fixture(autouse=True)
    def _pool(self, new_store: Callable[..., MooncakeStore], wall: object) -> None:
        self.pool = FakePool(nodes=2, node_bytes=50 * 4096)
        self.new_store, self.wall = new_store, wall

    @pytest.fixture
    def component(self) -> MooncakeStore:
        return self.new_store(self.pool)

    def again(self) -> MooncakeStore:
        return self.new_store(self.pool)

    def flip(self, store: KvStore, group: BlockGroup, name: object, bit: int) -> None:
        kept = self.pool.kept[f"ours/{group.name}/{key(name).hex()}"]
        kept.data[bit // 8] ^= 1 << bit % 8

    def pass_time(self, seconds: float) -> None:
        self.wall.now_s += seconds
