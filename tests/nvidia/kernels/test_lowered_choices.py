"""Does the compiler accept the products that are chosen on Hopper?"""

import pytest
from deepinfer_core.interfaces.gemm import DenseSpec
from deepinfer_core.interfaces.operators.gemm import GemmDenseSpec, GemmExpertsSpec
from deepinfer_core.testing.tiles.lowering import lower
from deepinfer_nvidia.gemm.choices import dense_choice, expert_tuning
from deepinfer_nvidia.kernels.hopper import gemm_experts as hopper_experts


@pytest.mark.parametrize("rows", [8, 16, 32, 64, 65, 257])
@pytest.mark.parametrize(("in_width", "out_width", "groups"), [(5120, 384, 1), (4096, 1024, 8)])
def test_what_is_chosen_on_hopper_is_lowered(
    in_width: int, out_width: int, groups: int, rows: int
) -> None:
    spec = DenseSpec(
        in_width=in_width,
        out_width=out_width,
        groups=groups,
        activation_format="bfloat16",
        out_dtype="float32",
    )
    choice = dense_choice(spec, rows, is_hopper=True, cores=132)
    kernel = GemmDenseSpec(
        in_width=in_width,
        out_width=out_width,
        groups=groups,
        out_dtype="float32",
    )
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
    tuning = expert_tuning(7, 5120, 7 * rows, 132)
    source = lower(hopper_experts.build(spec, tuning), "sm_90a").source
    assert f"Experts<7, 5120, 2304, {tuning.groups}, {tuning.tiles}, {tuning.rows}," in source
