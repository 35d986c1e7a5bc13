"""Are the reference weights of the small model the published ones?"""

import pytest
import torch
from deepinfer_core.testing.tiny import (
    golden_tokens,
    golden_vision_weights,
    golden_weights,
    tiny_test_config,
)
from deepinfer_core.weights.manifest import manifest_of

# The published figures have seven decimals.
HALF_A_DECIMAL = 0.5e-7


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    return golden_weights(tiny_test_config())


def test_there_are_695_weights_of_5871150_parameters(weights):
    assert len(weights) == 695
    assert sum(weight.numel() for weight in weights.values()) == 5_871_150


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("embed.weight", [0.0186522, -0.2215725, 0.8864754, -0.1780503]),
        ("layers.0.attn.attn_sink", [-0.6204596, 0.0585868, -0.3570153, 0.0163745]),
        ("norm.weight", [0.8632073, 0.8016537, 0.9445203]),
    ],
)
def test_the_first_values_are_the_published_ones(weights, name, values):
    found = weights[name].flatten()[: len(values)]
    # fp32 adds up to half a unit in its last place, 2^-25 for numbers below 1.
    assert torch.allclose(found, torch.tensor(values), rtol=0, atol=HALF_A_DECIMAL + 2.0**-25)


def test_neither_quantisation_nor_vision_changes_the_text_weights(weights):
    other = golden_weights(tiny_test_config(quantised=False, vision=True))
    assert other.keys() == weights.keys()
    assert torch.equal(other["norm.weight"], weights["norm.weight"])


def test_the_vision_weights_are_23_tensors_of_210816_parameters():
    vision = golden_vision_weights(tiny_test_config(vision=True))
    assert len(vision) == 23
    assert sum(weight.numel() for weight in vision.values()) == 210_816


def test_weights_have_the_shapes_of_the_manifest(weights):
    manifest = manifest_of(tiny_test_config())
    assert {name: tuple(weight.shape) for name, weight in weights.items()} == {
        name: weight.shape for name, weight in manifest.weights.items()
    }


def test_the_prompt_is_the_published_one():
    tokens = golden_tokens()
    assert (tokens[:4], tokens[-1], len(tokens)) == ([3, 51, 161, 333], 2093, 96)
