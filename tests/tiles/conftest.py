"""What the interpreter's tests share: a generator of their own, and one way to run a kernel."""

from collections.abc import Callable

import pytest
import torch
from deepinfer_core.testing.seeds import seed_of

pytest.importorskip("tilelang", reason="these tests need the extra deepinfer-core[tiles]")


@pytest.fixture
def generator(request: pytest.FixtureRequest) -> torch.Generator:
    """Random numbers that belong to the test's name."""
    return torch.Generator().manual_seed(seed_of(request))


@pytest.fixture
def normal(generator: torch.Generator) -> Callable[..., torch.Tensor]:
    """Standard normal float32 tensors of a given shape."""

    def make(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    return make
