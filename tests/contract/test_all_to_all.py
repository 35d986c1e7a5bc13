"""Does core.local keep the contract of all_to_all?"""

import pytest
from deepinfer_core.plugin import BuildContext, ModelNeeds
from deepinfer_core.reference.all_to_all import LocalExchange, build
from deepinfer_core.testing.contracts import AllToAllContract


class TestLocalExchange(AllToAllContract):
    @pytest.fixture
    def component(self) -> LocalExchange:
        return build(None, BuildContext(device="cpu", needs=ModelNeeds()))
