"""Any place of any batch on the CPU; ``testing.sweeps.company`` has the requests."""

import pytest
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.testing.small_engines import slim_config
from deepinfer_core.testing.sweeps import CompanySweep
from deepinfer_core.testing.tiny_model import tiny_model

SEMANTIC = Numerics(compute="float32", activation_quantisation=False, cache_quantisation=False)


@pytest.fixture(scope="module", params=[Numerics(), SEMANTIC], ids=["production", "semantic"])
def model(request: pytest.FixtureRequest) -> TextModel:
    return tiny_model(request.param, config=slim_config(16))


class TestCompany(CompanySweep):
    """On the components of the reference, rounded and not."""
