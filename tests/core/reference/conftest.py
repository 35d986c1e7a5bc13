"""Random data whose seed is the name of the test that asks for it."""

from collections.abc import Iterator

import pytest
import torch
from deepinfer_core.testing.seeds import seed_of


@pytest.fixture
def generator(request: pytest.FixtureRequest) -> torch.Generator:
    return torch.Generator().manual_seed(seed_of(request))


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """For sums that threads might split; all other tests run on one thread."""
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(1)
