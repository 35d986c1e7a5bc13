"""Does core.cpu keep the contract of device?"""

import pytest
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.reference.device import CpuDevice, build_cpu
from deepinfer_core.testing.contracts import DeviceContract


class TestCpuDevice(DeviceContract):
    @pytest.fixture
    def component(self) -> CpuDevice:
        return build_cpu(None, BuildContext(device="cpu", needs=ModelNeeds()))
