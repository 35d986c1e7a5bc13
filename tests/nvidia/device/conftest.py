"""Which tests need a GPU? All of this folder; elsewhere they are skipped."""

import pytest
import torch
from deepinfer_core.plugin import BuildContext, ModelNeeds
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
