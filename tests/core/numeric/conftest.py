"""Random data whose seed is the name of the test that asks for it."""

import zlib
from collections.abc import Callable

import pytest
import torch


@pytest.fixture
def generator(request: pytest.FixtureRequest) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(request.node.name.encode()))


@pytest.fixture
def noise(generator: torch.Generator) -> Callable[..., torch.Tensor]:
    """Standard normal fp32 numbers of the shape given."""
    return lambda *shape: torch.randn(*shape, generator=generator)
