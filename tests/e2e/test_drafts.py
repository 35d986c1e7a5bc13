"""Drafts on the CPU; ``testing.sweeps.drafts`` has the requests."""

import pytest
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.backbone import TextModel
from deepinfer_core.testing.small_engines import slim_config
from deepinfer_core.testing.sweeps import DraftsSweep
from deepinfer_core.testing.tiny_model import tiny_model


@pytest.fixture(scope="module")
def model() -> TextModel:
    return tiny_model(Numerics(), config=slim_config(16))


class TestDrafts(DraftsSweep):
    """On the components of the reference."""
