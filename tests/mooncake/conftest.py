"""A pool of Mooncake's own for each test, or for all of a file. ``nox -s mooncake``."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deepinfer_cluster.probe import mooncake
from deepinfer_cluster.testing.real_pool import RealPool
from deepinfer_core.plugin import DeviceFacts, ModelNeeds, ProbeContext


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what Mooncake is missing for, and say what that is."""
    context = ProbeContext(device=DeviceFacts(device="cpu"), needs=ModelNeeds(), versions={})
    verdict = mooncake(context)
    if not verdict.usable:
        for item in items:
            item.add_marker(pytest.mark.skip(reason=f"{verdict.reason}: {verdict.fix}"))


@pytest.fixture
def new_pool(tmp_path: Path) -> Iterator[Callable[..., RealPool]]:
    """Starts pools, and ends them behind the test."""
    pools: list[RealPool] = []

    def start(**sizes: int) -> RealPool:
        pools.append(RealPool(tmp_path, **sizes))
        return pools[-1]

    yield start
    for pool in pools:
        pool.close()


@pytest.fixture(scope="module")
def shared_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPool]:
    """One for all tests of a file, which break nothing."""
    pool = RealPool(tmp_path_factory.mktemp("pool"), nodes=2)
    yield pool
    pool.close()
