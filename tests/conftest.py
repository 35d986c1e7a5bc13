"""What all rooms' tests share: one thread, and one small checkpoint."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("any_speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any_speed")
"""No test fails because the machine is slow or busy."""

pytest_plugins = ("deepinfer_core.testing.integrity", "deepinfer_core.testing.seeds")
"""No test may end with a block or a slot that nobody holds and nobody can take; ``--data-seed N``
runs all of them with other numbers."""


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """The products here are so small that threads only wait for each other."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def byte_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random checkpoint with every feature of the model and one token a byte."""
    from deepinfer_core.testing.byte_checkpoint import make_byte_checkpoint

    folder = tmp_path_factory.mktemp("checkpoint") / "bytes"
    make_byte_checkpoint(folder)
    return folder
