"""Does the compiler accept the products that are chosen on Hopper?"""

import pytest
from deepinfer_core.interfaces.operators.gemm import GemmDenseSpec, GemmExpertsSpec
from deepinfer_core.testing.tiles.lowering import lower
from deepinfer_nvidia.kernels.choice import Target, choose

HOPPER = Target(is_hopper=True)


@pytest.mark.parametrize("rows", [8, 16, 32, 64, 65, 257])
@pytest.mark.parametrize(("in_width", "out_width", "groups"), [(5120, 384, 1), (4096, 1024, 8)])
def test_what_is_chosen_on_hopper_is_lowered(
    in_width: int, out_width: int, groups: int, rows: int
) -> None:
    kernel = GemmDenseSpec(
        in_width=in_width,
        out_width=out_width,
        groups=groups,
        out_dtype="float32",
    )
    choice = choose("gemm_dense", kernel, HOPPER, rows)
    source = lower(choice.build(kernel, choice.tuning), "sm_90a").source
    assert "CUtensorMap x_TGK_desc" in source


@pytest.mark.parametrize("rows", [1, 16, 32, 64, 128])
def test_the_tiles_for_packed_experts_are_lowered(rows: int) -> None:
    spec = GemmExpertsSpec(
        experts=7,
        in_width=2304,
        out_width=5120,
        x_dtype="bfloat16",
        weight_format="mxfp4",
        out_dtype="float32",
    )
    choice = choose("gemm_experts", spec, HOPPER, 7 * rows)
    tuning = choice.tuning
    source = lower(choice.build(spec, tuning), "sm_90a").source
    assert f"Experts<7, 5120, 2304, {tuning.groups}, {tuning.tiles}, {tuning.rows}," in source
