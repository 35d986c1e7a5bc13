"""Do core.local and core.cpu keep the contract of all_to_all?"""

import pytest
from deepinfer_core.native import all_to_all as native
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.reference.all_to_all import LocalExchange, build
from deepinfer_core.testing.contracts import AllToAllContract


class TestLocalExchange(AllToAllContract):
    @pytest.fixture
    def component(self) -> LocalExchange:
        return build(None, BuildContext(device="cpu", needs=ModelNeeds()))


class TestCpuExchange(AllToAllContract):
    compute_dtypes = ("bfloat16", "float32")

    @pytest.fixture
    def component(self, native_context: BuildContext) -> native.CpuExchange:
        return native.build(None, native_context)
