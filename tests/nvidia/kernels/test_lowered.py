"""Does the compiler accept every kernel for every architecture, at the model's shapes if it can?"""

import pytest
from deepinfer_core.interfaces.operators.catalogue import operator_of
from deepinfer_core.testing.kernel_trials import KernelTrial, trials
from deepinfer_core.testing.tiles.lowering import lower
from deepinfer_nvidia.kernels.catalogue import catalogue

CATALOGUE = catalogue()


def chosen(kernel: str) -> KernelTrial:
    """The first case at the shapes of the model, or the first of all."""
    found = list(trials(CATALOGUE, kernel))
    return next((trial for trial in found if not trial.case.small), found[0])


@pytest.mark.parametrize(
    ("kernel", "arch"),
    [(kernel, arch) for kernel in CATALOGUE.kernels for arch in CATALOGUE.architectures_of(kernel)],
)
def test_a_kernel_is_lowered_under_the_name_of_its_operator(kernel: str, arch: str) -> None:
    trial = chosen(kernel)
    lowered = lower(trial.function(), arch, pass_configs=trial.pass_configs)
    assert f"{operator_of(kernel)}_kernel(" in lowered.source
    # racecheck loses count after a barrier of some of the threads, and reports what is no race.
    assert "__sync_thread_partial" not in lowered.source
