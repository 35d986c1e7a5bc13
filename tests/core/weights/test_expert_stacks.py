"""Do stacks of experts hold the right rows in the right places?"""

from dataclasses import replace

import pytest
import torch
from deepinfer_core.errors import WeightsError
from deepinfer_core.testing.checkpoints import write_known_checkpoint
from deepinfer_core.testing.tiny import golden_weights, tiny_test_config
from deepinfer_core.weights.checkpoint import open_checkpoint


@pytest.mark.parametrize(
    "prefix", ["layers.3.ffn.experts", "mtp.1.ffn.experts", "layers.3.ffn.experts."]
)
def test_gate_rows_stand_over_up_rows_for_each_expert(small_checkpoint, prefix):
    checkpoint = open_checkpoint(small_checkpoint)
    pair, down = checkpoint.experts(prefix)
    count = pair.shape[0]
    assert count == 2
    for expert in range(count):
        w1, w2, w3 = (
            checkpoint.quant(f"{prefix.rstrip('.')}.{expert}.w{part}.weight") for part in (1, 2, 3)
        )
        assert torch.equal(pair.data[expert], torch.cat((w1.data, w3.data)))
        assert torch.equal(pair.scale[expert], torch.cat((w1.scale, w3.scale)))
        assert torch.equal(down.data[expert], w2.data)
        assert torch.equal(down.scale[expert], w2.scale)


def test_stacks_have_the_logical_shapes_of_the_products(small_checkpoint, small_config):
    pair, down = open_checkpoint(small_checkpoint).experts("layers.0.ffn.experts")
    text = small_config.text_config
    wide, narrow = text.hidden_size, text.moe_intermediate_size
    assert tuple(pair.shape) == (text.n_routed_experts, 2 * narrow, wide)
    assert tuple(down.shape) == (text.n_routed_experts, wide, narrow)
    assert (pair.format, pair.data.dtype) == ("mxfp4", torch.uint8)


@pytest.mark.parametrize("form", ["bfloat16", "float32", "fp8_32x32"])
def test_stacks_keep_other_formats(written, form):
    def stored_as(weights):
        return [replace(item, format=form) if item.group == "experts" else item for item in weights]

    checkpoint = open_checkpoint(written(stored_as))
    pair, _ = checkpoint.experts("layers.0.ffn.experts")
    parts = [checkpoint.quant(f"layers.0.ffn.experts.1.w{part}.weight") for part in (1, 3)]
    assert pair.format == form
    assert torch.equal(pair.dequantise()[1], torch.cat([part.dequantise() for part in parts]))


def test_known_plain_experts_come_back_exactly(tmp_path):
    config = tiny_test_config()
    weights = golden_weights(config)
    write_known_checkpoint(tmp_path, config, weights, plain=True)
    pair, down = open_checkpoint(tmp_path).experts("layers.7.ffn.experts")
    assert torch.equal(pair.data[5, :64], weights["layers.7.ffn.experts.5.w1.weight"])
    assert torch.equal(pair.data[5, 64:], weights["layers.7.ffn.experts.5.w3.weight"])
    assert torch.equal(down.data[5], weights["layers.7.ffn.experts.5.w2.weight"])


def test_experts_in_different_formats_are_refused(written):
    def mixed(weights):
        name = "layers.0.ffn.experts.1.w3.weight"
        return [replace(item, format="bfloat16") if item.name == name else item for item in weights]

    with pytest.raises(WeightsError, match=r"found .*experts.0.w1.* in mxfp4 and .*experts.1.w3"):
        open_checkpoint(written(mixed)).experts("layers.0.ffn.experts")


def test_fp8_experts_that_end_inside_a_block_cannot_be_joined(tmp_path):
    config = tiny_test_config(moe_intermediate_size=48)
    data = config.to_dict()
    data["quantization_config"]["expert_dtype"] = "fp8"
    config = type(config).from_dict(data)
    write_known_checkpoint(tmp_path, config, golden_weights(config))
    with pytest.raises(WeightsError, match="48 rows, which end inside a block of 32"):
        open_checkpoint(tmp_path).experts("layers.0.ffn.experts")


def test_an_unknown_layer_has_no_experts(small_checkpoint):
    with pytest.raises(WeightsError, match=r"layers\.99\.ffn\.experts\.0\.w1\.weight"):
        open_checkpoint(small_checkpoint).experts("layers.99.ffn.experts")
