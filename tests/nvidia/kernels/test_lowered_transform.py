"""Does the compiler accept the row-wise kernels at the model's shapes?"""

import pytest
from deepinfer_core.testing.kernel_cases import KernelCase, all_cases
from deepinfer_core.testing.tiles.lowering import lower
from deepinfer_nvidia.kernels.catalogue import ARCHITECTURES, catalogue

CATALOGUE = catalogue()
LARGE = [case for case in all_cases() if not case.small and case.operator.startswith("transform_")]


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("case", LARGE, ids=lambda case: case.id)
def test_a_kernel_is_lowered_at_the_shapes_of_the_model(case: KernelCase, arch: str) -> None:
    """Under its own name, which is the operator's."""
    tuning = CATALOGUE.tune(case.operator, case.spec)
    func = CATALOGUE.load(case.operator)(case.spec, tuning)
    lowered = lower(func, arch, pass_configs=dict(tuning.pass_configs))
    assert f"{case.operator}_kernel(" in lowered.source


@pytest.mark.parametrize(
    "operator", [name for name in CATALOGUE.operators if name.startswith("transform_")]
)
def test_every_row_wise_kernel_has_a_case_at_the_shapes_of_the_model(operator: str) -> None:
    assert any(case.operator == operator for case in LARGE)
