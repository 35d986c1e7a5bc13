"""Does cluster.mooncake keep the contract of kv_store with Mooncake itself?"""

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest
from deepinfer_cluster.store import MooncakeStore
from deepinfer_cluster.testing.real_pool import RealPool
from deepinfer_core.interfaces.kv_store import BlockGroup, KvStore
from deepinfer_core.stores.records import record_bytes
from deepinfer_core.testing.contracts import KvStoreContract
from deepinfer_core.testing.contracts.kv_store_suite import key


@pytest.fixture(scope="module")
def client(shared_pool: RealPool) -> Iterator[Any]:
    """Of the tests' own, to damage what is in the pool."""
    from mooncake.store import MooncakeDistributedStore

    client = MooncakeDistributedStore()
    master = shared_pool.master_address
    assert client.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", master) == 0
    yield client
    client.close()


class TestMooncakeStore(KvStoreContract):
    """Time does not pass for it, so what expires is left out here; nor is it ever filled."""

    test_of_one_age_ends_of_texts_go_before_beginnings = None
    test_new_blocks_are_not_removed_for_newer_ones = None
    test_a_sweep_makes_room_before_it_is_needed = None

    @pytest.fixture(autouse=True)
    def _pool(self, shared_pool: RealPool, client: Any) -> None:
        self.pool, self.client, self.stores = shared_pool, client, []
        client.remove_all(True)

    @pytest.fixture
    def component(self) -> Iterator[MooncakeStore]:
        store = self.pool.store(pool="ours", lane_bytes=1 << 20)
        yield store
        store.close()

    def again(self) -> MooncakeStore:
        return self.pool.store(pool="ours", lane_bytes=1 << 20)

    def flip(self, store: KvStore, group: BlockGroup, name: object, bit: int) -> None:
        where = f"ours/{group.name}/{key(name).hex()}"
        size = record_bytes(group)
        record = ctypes.create_string_buffer(size)
        address = ctypes.addressof(record)
        self.client.register_buffer(address, size)
        assert self.client.batch_get_into([where], [address], [size]) == [size]
        changed = bytearray(record.raw)
        changed[bit // 8] ^= 1 << bit % 8
        record.raw = bytes(changed)
        assert self.client.batch_remove([where], True) == [0]
        assert self.client.batch_put_from([where], [address], [size]) == [0]
        self.client.unregister_buffer(address)
