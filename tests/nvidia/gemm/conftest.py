"""Random numbers for the tests of products."""

import pytest
import torch
from deepinfer_core.testing.seeds import seed_of


@pytest.fixture
def generator(request: pytest.FixtureRequest) -> torch.Generator:
    """Seeded from the name of the test."""
    return torch.Generator().manual_seed(seed_of(request))
