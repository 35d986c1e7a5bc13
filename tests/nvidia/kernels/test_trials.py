"""Is every kernel tried on small cases with every tuning that a launch may choose?"""

import pytest
from deepinfer_core.testing.kernel_trials import trials
from deepinfer_core.testing.sanitize import small_trials
from deepinfer_nvidia.kernels.catalogue import catalogue

CATALOGUE = catalogue()
REFERENCE = "deepinfer_nvidia.kernels.catalogue:catalogue"


@pytest.mark.parametrize("kernel", ["gemm_experts", "hopper/gemm_dense", "hopper/gemm_experts"])
def test_tunings_of_large_cases_are_tried_on_small_ones_too(kernel: str) -> None:
    found = list(trials(CATALOGUE, kernel))
    specs = {trial.case.spec for trial in found if trial.case.small}
    fitting = {one for spec in specs for one in CATALOGUE.choices(kernel, spec)}
    assert {trial.tuning for trial in found if trial.case.small} >= fitting
    assert len({trial.id for trial in found}) == len(found)


def test_a_checker_can_be_asked_for_some_kernels() -> None:
    norms = {"transform_rms_norm", "transform_rms_norm_cast"}
    assert {one.kernel for one in small_trials(REFERENCE, "rms_norm")} == norms
    some = {one.kernel for one in small_trials(REFERENCE, "rms_norm,gate_topk")}
    assert some == {*norms, "transform_gate_topk"}
    assert {one.kernel for one in small_trials(REFERENCE)} == set(CATALOGUE.kernels)
