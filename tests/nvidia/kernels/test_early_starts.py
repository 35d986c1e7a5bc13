"""Does a kernel that starts while the one before drains wait before it touches memory?

Such a kernel may read what that one still writes, or write what it still reads, until it has
waited; and whoever comes next relies on it having waited. No interpreter sees that.
"""

import re

import pytest
from deepinfer_core.testing.kernel_trials import trials
from deepinfer_core.testing.tiles.lowering import lower
from deepinfer_nvidia.kernels.catalogue import catalogue

CATALOGUE = catalogue()
EARLY = [
    kernel
    for kernel in CATALOGUE.operators
    if "pdl_sync" in (CATALOGUE.folder / f"{kernel}.py").read_text(encoding="utf-8")
]
WAIT = "cudaGridDependencySynchronize();"
READ_BEFORE = {"transform_mhc_mixes": {"base_M", "scale_3"}}
"""What is read before the wait: weights, which no kernel of a step writes."""


@pytest.mark.parametrize("kernel", EARLY)
def test_nothing_of_global_memory_is_touched_before_the_wait(kernel: str) -> None:
    trial = next(trials(CATALOGUE, kernel))
    function = trial.function()
    source = lower(function, "sm_90a", pass_configs=trial.pass_configs).source
    body = source[source.rindex("__global__") :].partition("{")[2]
    before, wait, _ = body.partition(WAIT)
    assert wait
    names = {buffer.name for buffer in function.buffer_map.values()}
    touched = {name for name in names if re.search(rf"\b{name}\b", before)}
    assert touched <= READ_BEFORE.get(kernel, set())


def test_some_kernels_start_early() -> None:
    assert len(EARLY) > 20
