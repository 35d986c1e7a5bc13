"""Twelve small stores behind one, with faults as a test sets them."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from deepinfer_core.interfaces.kv_store import StoreItem
from deepinfer_core.stores.erasure.codec import NumpyCodec
from deepinfer_core.stores.erasure.gathering import Patience
from deepinfer_core.stores.erasure.store import ErasureStore
from deepinfer_core.stores.memory import MemoryStore
from deepinfer_core.stores.retention import Limits
from deepinfer_core.testing.contracts.kv_store_suite import block, key
from deepinfer_core.testing.faulty_store import FaultyStore, Passing
from deepinfer_core.testing.store_groups import BLOCKS, FOREVER, STATES

LIMITS = Limits(
    capacity_bytes=1 << 20,
    retention_s={"agent": 3 * 86400.0, "chat": 7 * 86400.0, "state": 180.0},
)


class Twelve:
    """A store of 10 + 2 pieces, or of others, and its children."""

    def __init__(self, data: int = 10, parity: int = 2, patience: Patience | None = None) -> None:
        self.clock = Passing()
        self.children = [
            FaultyStore(MemoryStore(LIMITS, clock=self.clock)) for _ in range(data + parity)
        ]
        self.store = self.over(self.children, data, parity, patience)

    def over(
        self,
        children: Sequence[FaultyStore],
        data: int = 10,
        parity: int = 2,
        patience: Patience | None = None,
    ) -> ErasureStore:
        named = [(f"child {number}", one) for number, one in enumerate(children)]
        codec = NumpyCodec(data, parity)
        return ErasureStore(named, codec, patience=patience or Patience(hedge_s=0.02, most_s=1.0))

    def open(self) -> "Twelve":
        self.store.open([BLOCKS, STATES])
        return self

    def write(self, *items: StoreItem) -> list[str]:
        return [one.status for one in self.store.store("blocks", items, deadline_s=FOREVER)]

    def read(self, *names: object) -> list[str]:
        """Statuses; every hit is what was stored."""
        buffers = [bytearray(BLOCKS.block_bytes) for _ in names]
        keys = [key(name) for name in names]
        outcomes = self.store.load("blocks", keys, buffers, deadline_s=FOREVER)
        for name, buffer, outcome in zip(names, buffers, outcomes, strict=True):
            assert outcome.status != "hit" or buffer == block(name)
        return [one.status for one in outcomes]

    def find(self, *names: object) -> list[str]:
        keys = [key(name) for name in names]
        return [one.status for one in self.store.find("blocks", keys, deadline_s=FOREVER)]

    def fragments(self, name: object) -> list[bool]:
        """Which children have one."""
        return [
            one.inner.find("blocks", [key(name)], deadline_s=FOREVER)[0].status == "hit"
            for one in self.children
        ]

    def child_of(self, name: object, piece: int) -> FaultyStore:
        opened = self.store._opened
        assert opened is not None
        return self.children[opened.means.placing.child(key(name), piece)]

    def work(self, name: str) -> int:
        return self.store.report().work.get(name, 0)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for what a child does later; a test that waits in vain hangs."""
        while not condition():
            time.sleep(0.001)

    def up(self) -> None:
        """Forget that children were unavailable a moment ago."""
        opened = self.store._opened
        assert opened is not None
        for child in opened.means.children:
            child._down_until_s = 0.0


@pytest.fixture
def make() -> Iterator[Callable[..., Twelve]]:
    made: list[Twelve] = []

    def twelve(**options: Any) -> Twelve:
        made.append(Twelve(**options))
        return made[-1].open()

    yield twelve
    for one in made:
        for child in one.children:
            child.gate.set()
        one.store.close()


@pytest.fixture
def twelve(make: Callable[..., Twelve]) -> Twelve:
    return make()
