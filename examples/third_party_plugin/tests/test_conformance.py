"""Does the sampler fulfil the contract of its kind, and is it picked by name?"""

from pathlib import Path

import pytest
from acme_sampler.sampler import GumbelSampler
from deepinfer_core.config import load_settings, resolve_components
from deepinfer_core.plugin import load
from deepinfer_core.testing.contracts import SamplerContract

SETTINGS = Path(__file__).parents[1] / "deepinfer.toml"


@pytest.fixture(scope="module")
def gumbel() -> GumbelSampler:
    """Found through the installed entry point and named in the file."""
    resolved = resolve_components(load_settings(SETTINGS, environ={})).require()
    sampler = load(resolved, "sampler")
    assert isinstance(sampler, GumbelSampler)
    return sampler


class TestGumbelSampler(SamplerContract):
    """The whole suite, on the component as the configuration resolves it."""

    @pytest.fixture
    def component(self, gumbel: GumbelSampler) -> GumbelSampler:
        """The component under test."""
        return gumbel
