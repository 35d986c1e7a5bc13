"""Do compiled kernels that nobody thought of agree with the tile interpreter?

A longer run: ``python -m deepinfer_core.testing.tiles.fuzz_device``.
"""

import os

import pytest
from deepinfer_core.testing.tiles.fuzz_device import fuzz

SEEDS = range(2000, 2020)


@pytest.fixture(scope="module")
def found() -> dict[int, list[str]]:
    """What is wrong with each kernel; they are compiled side by side."""
    return dict(fuzz(SEEDS, workers=min(len(SEEDS), os.cpu_count() or 1)))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_kernel_has_the_bits_of_the_interpreter_and_of_numpy(
    seed: int, found: dict[int, list[str]]
) -> None:
    assert found[seed] == []
