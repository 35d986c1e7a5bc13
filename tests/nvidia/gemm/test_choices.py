"""Do the tiles that launches choose exist: do they fit a core, and divide what they must?"""

import pytest
from deepinfer_core.interfaces.gemm import DenseSpec
from deepinfer_nvidia.gemm.choices import dense_choice, expert_tuning

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


@pytest.mark.parametrize(("out_width", "groups"), [(4608, 4), (5120, 5)])
def test_a_row_each_for_seven_experts_is_one_wave(out_width: int, groups: int) -> None:
    """7 x 72 and 7 x 80 tiles of 64 channels on 132 cores: 126 and 112 blocks."""
    assert expert_tuning(7, out_width, 7, 132).groups == groups


@pytest.mark.parametrize(("mean", "rows"), [(1, 8), (4, 8), (8, 16), (20, 32), (100, 128)])
def test_tiles_grow_with_the_rows_of_an_expert(mean: int, rows: int) -> None:
    assert expert_tuning(384, 4608, 384 * mean, 132).rows == rows


@pytest.mark.parametrize(
    ("in_width", "out_width", "groups", "parts"),
    [
        (5120, 384, 1, 8),
        (5120, 1280, 1, 4),
        (5120, 1281, 1, 1),
        (4096, 1024, 8, 1),
        (2304, 384, 1, 1),
        (5184, 384, 1, 1),
    ],
)
def test_the_parts_of_k_follow_from_the_widths(
    in_width: int, out_width: int, groups: int, parts: int
) -> None:
    """And are the same for every number of rows: they decide the order of the sum."""
    spec = DenseSpec(
        in_width=in_width,
        out_width=out_width,
        groups=groups,
        activation_format="bfloat16",
        out_dtype="bfloat16",
    )
    choices = [dense_choice(spec, rows, is_hopper=True, cores=132) for rows in ROWS]
    assert {choice.parts for choice in choices} == {parts}
