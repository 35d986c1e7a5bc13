"""One thread for each test process: tiny products lose more by sharing than they gain."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)
