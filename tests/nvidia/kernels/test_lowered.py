"""Does the compiler accept every kernel for every architecture, at the model's shapes if it can?"""

import pytest
from deepinfer_core.testing.kernel_cases import KernelCase, cases_of
from deepinfer_core.testing.tiles.lowering import lower
from deepinfer_nvidia.kernels.catalogue import ARCHITECTURES, catalogue

CATALOGUE = catalogue()


def chosen(operator: str) -> KernelCase:
    """The first case at the shapes of the model, or the first of all."""
    cases = cases_of(operator)
    return next((case for case in cases if not case.small), cases[0])


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("operator", CATALOGUE.operators)
def test_a_kernel_is_lowered_under_the_name_of_its_operator(operator: str, arch: str) -> None:
    case = chosen(operator)
    tuning = CATALOGUE.tune(operator, case.spec)
    function = CATALOGUE.load(operator)(case.spec, tuning)
    lowered = lower(function, arch, pass_configs=dict(tuning.pass_configs))
    assert f"{operator}_kernel(" in lowered.source
