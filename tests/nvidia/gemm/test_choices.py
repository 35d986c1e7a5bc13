"""Do the tiles that launches choose exist: do they fit a core, and divide what they must?"""

import pytest
from deepinfer_nvidia.gemm.choices import expert_tuning

SHARED_BYTES = 227 * 1024
"""What a block of Hopper can have; a core has 1024 more for each block."""

ROWS = [1, 7, 8, 9, 16, 17, 33, 64, 65, 128, 129, 511, 513, 4096, 100_000]
MODEL = [(5120, 4608), (2304, 5120)]


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("out_width", [24, 64, 4608, 5120])
@pytest.mark.parametrize("experts", [1, 7, 384])
def test_experts_fit_and_divide(rows: int, out_width: int, experts: int) -> None:
    tuning = expert_tuning(experts, out_width, rows, 132)
    assert -(-out_width // 64) % (tuning.groups * tuning.tiles) == 0
    block = tuning.shared_bytes + 16 * tuning.stages + 8 * experts
    assert block <= SHARED_BYTES
    assert tuning.blocks_per_core * (block + 1024) <= SHARED_BYTES + 1024
    assert tuning.depth * tuning.tiles % 2 == 0
    assert 4 % tuning.depth == 0


@pytest.mark.parametrize("rows", ROWS)
def test_more_rows_an_expert_never_get_a_smaller_tile(rows: int) -> None:
    tuning = expert_tuning(7, 4608, 7 * rows, 132)
    assert tuning.rows >= min(rows, 128)
