"""Do the tiles that launches choose exist: do they fit a core, and divide what they must?"""

import pytest
from deepinfer_core.interfaces.gemm import DenseSpec
from deepinfer_nvidia.gemm.choices import DenseChoice, dense_choice, expert_tuning
from deepinfer_nvidia.kernels import gemm_dense

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


def dense(in_width: int, out_width: int, rows: int, *, is_hopper: bool = True) -> DenseChoice:
    spec = DenseSpec(
        in_width=in_width,
        out_width=out_width,
        activation_format="bfloat16",
        out_dtype="bfloat16",
    )
    return dense_choice(spec, rows, is_hopper=is_hopper, cores=132)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("in_width", "out_width"), MODEL)
def test_without_hopper_every_kernel_is_in_tilelang(
    in_width: int, out_width: int, rows: int
) -> None:
    assert dense(in_width, out_width, rows, is_hopper=False).build is gemm_dense.build


@pytest.mark.parametrize(
    ("in_width", "out_width", "rows", "tile"),
    [
        (4096, 4096, 1, (8, 64)),
        (4096, 4096, 16, (16, 64)),
        (4096, 4096, 128, (64, 64)),
        (4096, 4096, 256, (128, 64)),
        (4096, 4096, 512, (128, 128)),
        (5120, 4608, 4096, (128, 192)),
        (4096, 4096, 4096, (128, 256)),
        (5120, 384, 64, (64, 32)),
    ],
)
def test_dense_products_get_the_tile_that_was_fastest(
    in_width: int, out_width: int, rows: int, tile: tuple[int, int]
) -> None:
    assert dense(in_width, out_width, rows).tile == tile


def test_a_ragged_width_with_groups_is_left_to_tilelang() -> None:
    """A stage of 64 inputs would reach into the next group."""
    spec = DenseSpec(
        in_width=96, out_width=4096, groups=2, activation_format="bfloat16", out_dtype="bfloat16"
    )
    choice = dense_choice(spec, 4096, is_hopper=True, cores=132)
    assert choice.build is gemm_dense.build
