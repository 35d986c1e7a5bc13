"""Does nvcc compile each kernel that is not what it was when it was last compiled?

What was compiled stands in the record, so an unchanged kernel costs no compiler here. ``deepinfer
bench kernels --evidence --record FILE`` puts a changed one there.
"""

import pytest
from deepinfer_core.testing.evidence import compiled_words
from deepinfer_core.testing.kernel_record import content_of, entry_of, read_record
from deepinfer_core.testing.kernel_trials import trials
from deepinfer_core.testing.tiles.cubin import find_nvcc
from deepinfer_nvidia.kernels.catalogue import catalogue

CATALOGUE = catalogue()
RECORD = read_record(CATALOGUE.measured)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", CATALOGUE.kernels)
def test_a_kernel_compiles_if_it_is_not_what_was_compiled(kernel: str) -> None:
    _, is_same = entry_of(RECORD, kernel, "compiled", content_of(CATALOGUE, kernel))
    if is_same:
        return
    if find_nvcc() is None:
        pytest.skip("there is no nvcc, and the kernel has changed since it was compiled")
    small = [trial for trial in trials(CATALOGUE, kernel) if trial.case.small]
    assert not compiled_words(CATALOGUE, kernel, small).startswith("no")
