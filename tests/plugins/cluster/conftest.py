"""What do tests of the store in a pool share?"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from deepinfer_cluster.pool import Place
from deepinfer_cluster.store import MooncakeStore, Terms
from deepinfer_cluster.testing.fake_client import library_of
from deepinfer_cluster.testing.fake_pool import FakePool

PLACE = Place(master="127.0.0.1:1", metadata="P2PHANDSHAKE", protocol="tcp", devices="", host="")
TERMS = {
    "pool": "ours",
    "retention_s": {"agent": 3 * 86400.0, "chat": 7 * 86400.0, "state": 180.0},
    "sweeps": True,
    "lanes": 2,
    "lane_bytes": 1 << 20,
    "retry_s": 1e9,
}


class Time:
    """That passes when a test says so."""

    now_s = 1e9

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def wall() -> Time:
    return Time()


@pytest.fixture
def new_store(wall: Time) -> Iterator[Callable[..., MooncakeStore]]:
    """Makes stores in a pool; closed at the end."""
    made: list[MooncakeStore] = []

    def make(pool: FakePool, /, *, copies: int = 1, **terms: Any) -> MooncakeStore:
        store = MooncakeStore(
            library_of(pool, copies), PLACE, pool.admin(), Terms(**{**TERMS, **terms}), wall=wall
        )
        made.append(store)
        return store

    yield make
    for store in made:
        store.close()
