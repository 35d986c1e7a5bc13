"""Does the compiler accept the matrix products at the model's shapes?"""

import pytest
from deepinfer_core.interfaces.gemm import DenseSpec
from deepinfer_core.interfaces.operators.gemm import GemmDenseSpec, GemmExpertsSpec
from deepinfer_core.testing.kernel_cases import KernelCase
from deepinfer_core.testing.kernel_cases.gemm import cases
from deepinfer_core.testing.tiles.lowering import lower
from deepinfer_nvidia.gemm.choices import dense_tuning, expert_tuning, hopper_tuning
from deepinfer_nvidia.kernels import gemm_dense
from deepinfer_nvidia.kernels.catalogue import ARCHITECTURES, catalogue
from deepinfer_nvidia.kernels.hopper import gemm_dense as hopper_dense
from deepinfer_nvidia.kernels.hopper import gemm_experts as hopper_experts

CATALOGUE = catalogue()
LARGE = [case for case in cases() if not case.small]
DENSE = GemmDenseSpec(in_width=5120, out_width=4608, out_dtype="float32")


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("case", LARGE, ids=lambda case: case.id)
def test_a_kernel_is_lowered_at_the_shapes_of_the_model(case: KernelCase, arch: str) -> None:
    """Under its own name, which is the operator's."""
    tuning = CATALOGUE.tune(case.operator, case.spec)
    func = CATALOGUE.load(case.operator)(case.spec, tuning)
    lowered = lower(func, arch, pass_configs=dict(tuning.pass_configs))
    assert f"{case.operator}_kernel(" in lowered.source


@pytest.mark.parametrize("rows", [8, 16, 32, 64, 128])
def test_the_tiles_for_few_rows_are_lowered(rows: int) -> None:
    func = gemm_dense.build(DENSE, dense_tuning(DENSE.out_width, rows))
    assert "wgmma" in lower(func, "sm_90a").source


@pytest.mark.parametrize("rows", [129, 512, 4096])
def test_the_tiles_for_many_rows_are_lowered(rows: int) -> None:
    spec = DenseSpec(
        in_width=5120, out_width=4608, activation_format="bfloat16", out_dtype="float32"
    )
    tuning = hopper_tuning(spec, rows, 132)
    assert tuning is not None
    source = lower(hopper_dense.build(DENSE, tuning), "sm_90a").source
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
