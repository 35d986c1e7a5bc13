"""Does the compiler accept the products that are chosen on Hopper?"""

import pytest
from deepinfer_core.interfaces.operators.gemm import GemmDenseSpec, GemmExpertsSpec
from deepinfer_core.testing.tiles.lowering import lower
from deepinfer_nvidia.kernels.choice import Target, choose
from deepinfer_nvidia.kernels.hopper.gemm_dense import build
from deepinfer_nvidia.kernels.hopper.ring import Tuning

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


@pytest.mark.parametrize(
    ("held", "registers", "threads"), [(1, 0, 288), (4, 0, 288), (2, 224, 384)]
)
def test_blocks_that_have_several_parts_of_k_are_lowered(
    held: int, registers: int, threads: int
) -> None:
    spec = GemmDenseSpec(in_width=5120, out_width=512, out_dtype="bfloat16")
    tuning = Tuning(channels=64, stages=8, parts=8, is_spread=True, held=held, registers=registers)
    source = lower(build(spec, tuning), "sm_90a").source
    assert f"Spread<512, 5120, 8, {held}, Ring<" in source
    assert f"__launch_bounds__({threads}, 1)" in source


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
