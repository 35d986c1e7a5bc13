"""Does the memory of several machines keep the contract of kv_store?"""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from deepinfer_core.interfaces.kv_store import BlockGroup, KvStore
from deepinfer_core.stores.memory import MemoryStore
from deepinfer_core.stores.peers.store import PeersStore
from deepinfer_core.stores.retention import Limits
from deepinfer_core.testing.contracts import KvStoreContract
from deepinfer_core.testing.contracts.kv_store_suite import key
from deepinfer_core.testing.faulty_store import Passing, flip_in_memory
from deepinfer_core.testing.free_ports import free_addresses
from deepinfer_core.testing.store_groups import BLOCKS, STATES

PAGE = 4096
LIMITS = Limits(
    capacity_bytes=100 * PAGE,
    retention_s={"agent": 3 * 86400.0, "chat": 7 * 86400.0, "state": 180.0},
)


class PeersContract(KvStoreContract):
    @pytest.fixture(autouse=True)
    def _clock(self) -> None:
        self.clock = Passing()

    def pass_time(self, seconds: float) -> None:
        self.clock.now_s += seconds

    def peers(self, limits: Limits = LIMITS) -> PeersStore:
        raise NotImplementedError

    @pytest.fixture
    def component(self) -> PeersStore:
        return self.peers()

    @pytest.fixture
    def limited(self) -> PeersStore:
        return self.peers(replace(LIMITS, quota_bytes=8 * PAGE))

    def flip(self, store: KvStore, group: BlockGroup, name: object, bit: int) -> None:
        assert isinstance(store, PeersStore)
        assert store._opened is not None
        assert isinstance(store._opened.local, MemoryStore)
        flip_in_memory(store._opened.local, group, key(name), bit)


class TestOneMember(PeersContract):
    def peers(self, limits: Limits = LIMITS) -> PeersStore:
        [name] = free_addresses(1)
        return PeersStore(limits, name=name, members=[name], secret=b"", clock=self.clock)


class TestOneOfThreeMembers(PeersContract):
    """The others are empty, and asked for whatever this one has not got."""

    @pytest.fixture(autouse=True)
    def _others(self) -> Iterator[None]:
        self.members = free_addresses(3)
        others = [self.member(name, LIMITS) for name in self.members[1:]]
        for other in others:
            other.open([BLOCKS, STATES])
        yield
        for other in others:
            other.close()

    def member(self, name: str, limits: Limits) -> PeersStore:
        return PeersStore(
            limits, name=name, members=self.members, secret=b"", call_s=5.0, clock=self.clock
        )

    def peers(self, limits: Limits = LIMITS) -> PeersStore:
        return self.member(self.members[0], limits)
