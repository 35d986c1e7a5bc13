"""Does the manifest give the published tensor table?"""

from importlib import resources

import pytest
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.testing.tiny import tiny_test_config
from deepinfer_core.weights.manifest import GROUPS, WeightSpec, manifest_of


@pytest.fixture(scope="module")
def released():
    file = resources.files("deepinfer_core.model") / "data" / "deepseek_v41_flash.json"
    with resources.as_file(file) as path:
        return manifest_of(ModelConfig.from_file(path))


def test_the_released_checkpoint_has_96085_tensors_of_510286023000_bytes(released):
    assert len(released.stored) == 96_085
    assert released.nbytes == 510_286_023_000


def test_the_groups_have_the_published_counts(released):
    counts = {group: count for group, (count, _) in released.by_group().items()}
    assert counts == {
        "experts": 94_464,
        "layers": 1_290,
        "compressor": 11,
        "indexer": 32,
        "engram": 12,
        "global": 6,
        "drafter": 7,
        "vision": 263,
    }


def test_routed_experts_and_engram_tables_have_the_published_bytes(released):
    assert released.by_group()["experts"][1] == 295_997_276_160
    tables = [item for name, item in released.stored.items() if ".engram.embed." in name]
    assert sum(item.nbytes for item in tables) == 202_758_032_400


def test_with_fp8_experts_the_bytes_are_those_of_the_published_reencoding(released):
    file = resources.files("deepinfer_core.model") / "data" / "deepseek_v41_flash.json"
    with resources.as_file(file) as path:
        data = ModelConfig.from_file(path).to_dict()
    data["quantization_config"]["expert_dtype"] = "fp8"
    assert manifest_of(ModelConfig.from_dict(data)).nbytes == 772_004_202_840


@pytest.mark.parametrize(
    ("name", "dtype", "shape"),
    [
        ("layers.0.attn.wq_a.weight", "F8_E4M3", (1280, 5120)),
        ("layers.0.attn.wq_a.scale", "F8_E8M0", (40, 160)),
        ("mtp.2.attn.wo_a.weight", "F8_E4M3", (8192, 4096)),
        ("mtp.2.attn.wo_a.scale", "F8_E8M0", (256, 128)),
        ("layers.39.hc_ffn_fn", "F32", (24, 20480)),
        ("layers.0.ffn.gate.bias_vl", "F32", (384,)),
        ("mtp.1.ffn.gate.weight", "BF16", (128, 5120)),
        ("layers.39.ffn.experts.383.w1.weight", "I8", (2304, 2560)),
        ("layers.39.ffn.experts.383.w1.scale", "F8_E8M0", (2304, 160)),
        ("layers.39.ffn.experts.383.w2.weight", "I8", (5120, 1152)),
        ("layers.39.ffn.experts.383.w2.scale", "F8_E8M0", (5120, 72)),
        ("layers.14.attn.compressor.wgate.weight", "BF16", (512, 5120)),
        ("layers.20.attn.indexer.wk.weight", "BF16", (128, 512)),
        ("layers.36.attn.indexer.wq_b.scale", "F8_E8M0", (128, 40)),
        ("layers.14.engram.embed.weight", "F8_E4M3", (384016682, 256)),
        ("layers.14.engram.embed.scale", "F8_E8M0", (384016682, 8)),
        ("layers.1.engram.wkv.scale", "F8_E8M0", (800, 192)),
        ("layers.1.engram.q_weight", "BF16", (4, 5120)),
        ("mtp.0.main_proj.scale", "F8_E8M0", (160, 480)),
        ("mtp.2.confidence_head.proj.weight", "BF16", (1, 5376)),
        ("vision.patch_embed.proj.weight", "BF16", (1024, 588)),
        ("vision.blocks.31.attn.wqkv.bias", "BF16", (3072,)),
        ("aligner.w1.weight", "BF16", (5120, 9216)),
        ("image_newline", "BF16", (5120,)),
    ],
)
def test_a_stored_tensor_has_the_published_dtype_and_shape(released, name, dtype, shape):
    assert (released.stored[name].dtype, released.stored[name].shape) == (dtype, shape)


@pytest.mark.parametrize(
    "name",
    [
        "layers.20.attn.compressor.wgate.weight",
        "layers.24.attn.compressor.wkv.weight",
        "layers.24.attn.indexer.wk.weight",
        "layers.3.attn.indexer.wq_b.weight",
        "layers.2.engram.wkv.weight",
        "mtp.0.norm.weight",
        "mtp.0.embed.weight",
        "mtp.0.ffn.experts.128.w1.weight",
        "norm.scale",
    ],
)
def test_what_a_layer_lacks_is_not_demanded(released, name):
    assert name not in released.stored


def test_an_unquantised_small_model_has_695_plain_tensors():
    stored = manifest_of(tiny_test_config(quantised=False)).stored
    assert len(stored) == 695
    assert {item.dtype for item in stored.values()} == {"BF16", "F32"}


def test_without_vision_there_are_no_image_vectors():
    assert not any(
        name.startswith(("image_", "vision")) for name in manifest_of(tiny_test_config()).stored
    )


def test_every_weight_belongs_to_a_known_group():
    groups = {
        weight.group for weight in manifest_of(tiny_test_config(vision=True)).weights.values()
    }
    assert groups == set(GROUPS)


@pytest.mark.parametrize(
    ("form", "shapes"),
    [
        ("bfloat16", [(33, 96)]),
        ("mxfp8", [(33, 96), (33, 3)]),
        ("mxfp4", [(33, 48), (33, 3)]),
        ("fp8_32x32", [(33, 96), (2, 3)]),
    ],
)
def test_a_weight_is_stored_as_its_format_demands(form, shapes):
    weight = WeightSpec(name="x.weight", shape=(33, 96), format=form, group="layers")
    stored = weight.stored()
    assert [item.shape for item in stored] == shapes
    assert [item.name for item in stored] == ["x.weight", "x.scale"][: len(shapes)]
