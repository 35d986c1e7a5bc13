"""Do compiled kernels that nobody thought of agree with the tile interpreter?

A longer run: ``python -m deepinfer_core.testing.tiles.fuzz_device``.
"""

from pathlib import Path

import pytest
from deepinfer_core.testing.tiles.fuzz_device import device_arch, disagreements


@pytest.mark.parametrize("seed", range(2000, 2008))
def test_a_random_kernel_has_the_bits_of_the_interpreter_and_of_numpy(
    seed: int, tmp_path: Path
) -> None:
    assert disagreements(seed, tmp_path, device_arch()) == []
