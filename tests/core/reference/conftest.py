"""One thread, and random data whose seed is the name of the test that asks for it."""

from collections.abc import Iterator

import pytest
import torch
from deepinfer_core.testing.seeds import seed_of


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Tiny products lose more by sharing than they gain."""
    torch.set_num_threads(1)


@pytest.fixture
def generator(request: pytest.FixtureRequest) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(request))


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """For sums that threads might split."""
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(1)
