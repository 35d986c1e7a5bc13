"""Are drawn weights what a checkpoint of the same configuration would give?"""

import math

import pytest
import torch
from deepinfer_core.bench.layers.weights import DrawnWeights
from deepinfer_core.numeric import quantise
from deepinfer_core.testing.tiny import tiny_test_config
from deepinfer_core.weights.manifest import manifest_of

CONFIG = tiny_test_config()
CPU = torch.device("cpu")


def drawn(seed: int = 0) -> DrawnWeights:
    return DrawnWeights(CONFIG, CPU, seed=seed)


@pytest.mark.parametrize(
    "name", ["layers.3.attn.wq_b.weight", "embed.weight", "layers.1.engram.embed.weight"]
)
def test_shape_format_and_scales_are_those_of_the_manifest(name: str) -> None:
    spec = manifest_of(CONFIG).weights[name]
    weight = drawn().quant(name)
    assert (tuple(weight.shape), weight.format) == (spec.shape, spec.format)
    like = quantise(torch.ones(spec.shape), spec.format)
    assert weight.data.shape == like.data.shape
    assert weight.data.dtype == like.data.dtype
    assert (weight.scale is None) == (like.scale is None)
    if weight.scale is not None and like.scale is not None:
        assert weight.scale.shape == like.scale.shape
        assert weight.scale.dtype == like.scale.dtype


@pytest.mark.parametrize(
    ("name", "width"), [("layers.3.attn.wq_b.weight", 64), ("layers.3.attn.wo_b.weight", 64)]
)
def test_products_keep_the_size_of_their_inputs(name: str, width: int) -> None:
    values = drawn().quant(name).dequantise()
    # A sample variance of n numbers is off by about sqrt(2 / n), and by the scales, which take two
    # values in blocks of 1024: ten times that is far outside.
    blocks = values.numel() / 1024
    assert float(values.var()) * width == pytest.approx(1.0, abs=10 * math.sqrt(2 / blocks) * 0.6)
    assert abs(float(values.mean())) < 10 / math.sqrt(values.numel() * width)


def test_experts_are_stacked_gate_over_up() -> None:
    gate_up, down = drawn().experts("layers.3.ffn.experts")
    assert tuple(gate_up.shape) == (8, 2 * 64, 128)
    assert tuple(down.shape) == (8, 128, 64)
    assert gate_up.format == down.format == "mxfp4"
    values = gate_up.dequantise()
    assert float(values.var()) * 128 == pytest.approx(1.0, abs=0.05)
    assert not torch.equal(values[0], values[1])


def test_norms_are_near_one() -> None:
    norm = drawn().tensor("layers.3.attn_norm.weight").float()
    # Deviation 0.1: of 128 values none lies ten deviations away.
    assert float(norm.mean()) == pytest.approx(1.0, abs=0.1)
    assert float((norm - 1).abs().max()) < 1.0


def test_tables_lie_in_host_memory() -> None:
    table = drawn().table("layers.1.engram.embed.weight")
    assert table.data.device == CPU
    assert table.shape[0] == CONFIG.text_config.engram_num_embeddings[0]


def test_the_same_seed_gives_the_same_weights_and_another_one_others() -> None:
    name = "layers.3.attn.wq_b.weight"
    first, again, other = (drawn(seed).quant(name).data.view(torch.uint8) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_no_code_is_nan() -> None:
    assert bool(drawn().quant("layers.3.attn.wq_b.weight").dequantise().isfinite().all())
