"""Which tests need a GPU? All of this folder; elsewhere they are skipped."""

import sys
from collections.abc import Callable, Sequence

import pytest
import torch
from deepinfer_core.interfaces.operators.wanted import WantedKernel
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.testing.rehearsed_engines import compile_once
from deepinfer_nvidia.device.cuda import CudaDevice, build
from deepinfer_nvidia.options import CudaOptions


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in this folder, and skip it without a GPU."""
    here = __file__.rpartition("/")[0]
    for item in items:
        if not str(item.path).startswith(here):
            continue
        item.add_marker(pytest.mark.nvidia)
        if not torch.cuda.is_available():
            reason = "needs an NVIDIA GPU and torch for it: nox -s 'device(nvidia)' where one is"
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def cuda() -> CudaDevice:
    """The first GPU."""
    return build(CudaOptions(), BuildContext(device="nvidia", needs=ModelNeeds()))


CompileAhead = Callable[[Sequence[WantedKernel], str], None]


@pytest.fixture(scope="session")
def compile_ahead(request: pytest.FixtureRequest) -> CompileAhead:
    """Compiles kernels into a folder, all at once, before a test compiles each at its call.

    Test processes wait for the one that compiles; that one says how long it took.
    """
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def ahead(wanted: Sequence[WantedKernel], folder: str) -> None:
        done = compile_once(wanted, folder)
        if not done.tried:
            return
        words = (
            f"{len(done.compiled)} of {len(wanted)} kernels compiled in {done.elapsed_s:.1f} s,"
            f" {done.jobs} at once; {len(done.failed)} failed, {len(done.found)} were there"
        )
        with capture.global_and_fixture_disabled():
            sys.stderr.write(f"\n{words}\n")
            sys.stderr.flush()

    return ahead
