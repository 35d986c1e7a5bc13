"""Is every weight of the manifest found once, in a readable form, and everything else refused?"""

from dataclasses import replace

import pytest
from deepinfer_core.errors import WeightsError
from deepinfer_core.weights.checkpoint import open_checkpoint
from deepinfer_core.weights.manifest import WeightSpec, manifest_of

from tests.core.weights.conftest import edit_header, rename_in_index, shard_of

FP8 = "layers.0.attn.wkv.weight"
FP4 = "layers.3.ffn.experts.1.w2.weight"
NORM = "layers.0.attn_norm.weight"


def changed(name, **changes):
    """A list of weights with one of them changed."""
    return lambda weights: [
        replace(weight, **changes) if weight.name == name else weight for weight in weights
    ]


def with_extra(name, shape=(32, 32), form="bfloat16"):
    extra = WeightSpec(name=name, shape=shape, format=form, group="layers")
    return lambda weights: [*weights, extra]


def as_format(form):
    return lambda weights: [replace(weight, format=form) for weight in weights]


def test_a_whole_checkpoint_is_covered_in_the_order_of_the_manifest(small_checkpoint, small_config):
    found = open_checkpoint(small_checkpoint).found
    assert list(found) == list(manifest_of(small_config).weights)
    assert all(item.format == item.spec.format for item in found.values())


@pytest.mark.parametrize("name", [FP8, FP4, NORM, "embed.weight", "mtp.2.norm.weight"])
def test_a_missing_tensor_is_named(written, name):
    folder = written(lambda weights: [weight for weight in weights if weight.name != name])
    with pytest.raises(WeightsError, match=f"asked for the tensor {name} "):
        open_checkpoint(folder)


@pytest.mark.parametrize("name", [FP8, FP4])
def test_missing_scales_are_named(damaged, name):
    scale = name.replace(".weight", ".scale")
    other = "x" * len(scale)
    edit_header(shard_of(damaged, scale), scale.encode(), other.encode())
    rename_in_index(damaged, lambda weights: weights.update({other: weights.pop(scale)}))
    with pytest.raises(WeightsError, match=f"asked for the tensor {scale} "):
        open_checkpoint(damaged)


@pytest.mark.parametrize(
    "name", ["layers.0.attn.extra.weight", "layers.12.attn_norm.weight", "image_start", "bias"]
)
def test_an_unknown_tensor_is_named(written, name):
    with pytest.raises(WeightsError, match=f"found {name} in model-.* as well"):
        open_checkpoint(written(with_extra(name)))


def test_an_expert_beyond_the_configured_count_is_named(written):
    name = "layers.3.ffn.experts.99.w1.weight"
    with pytest.raises(WeightsError, match=f"found {name}"):
        open_checkpoint(written(with_extra(name)))


@pytest.mark.parametrize("name", ["layers.0.hc_attn_norm.weight", "layers.0.hc_ffn_norm_weight"])
def test_an_unfolded_norm_of_the_stream_mixes_is_refused(written, name):
    with pytest.raises(WeightsError, match=f"{name}.*fold the norm"):
        open_checkpoint(written(with_extra(name)))


def test_the_unshifted_form_is_refused(written):
    with pytest.raises(WeightsError, match=r"hc_head_fn.*not implemented"):
        open_checkpoint(written(with_extra("hc_head_fn")))


@pytest.mark.parametrize("name", ["mtp.0.embed.weight", "mtp.2.head.weight"])
def test_copies_of_embedding_and_head_in_the_drafter_are_ignored(written, name):
    assert name not in open_checkpoint(written(with_extra(name))).found


def test_a_wrong_shape_is_named_with_both_shapes(written):
    with pytest.raises(WeightsError, match=rf"{NORM} of shape \[64\], found \[65\]"):
        open_checkpoint(written(changed(NORM, shape=(65,))))


def test_scales_of_the_wrong_shape_are_named(written):
    # Scales for every row instead of one for 32 x 32.
    with pytest.raises(WeightsError, match=r"wkv\.scale of shape"):
        open_checkpoint(written(changed(FP8, format="mxfp8")))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [(NORM, b"BF16", b"F16"), (FP8, b"F8_E4M3", b"F8_E5M2"), (FP4, b"I8", b"BOOL"[:4])],
)
def test_a_wrong_dtype_is_named_with_both_dtypes(damaged, name, old, new):
    start = f'"{name}":{{"dtype":"'.encode()
    path = shard_of(damaged, name)
    if len(new) > len(old):
        # Room for the longer name: the header ends with padding, or the metadata go.
        edit_header(path, b'"__metadata__":{"format":"pt"},', b"")
    edit_header(path, start + old, start + new)
    with pytest.raises(
        WeightsError, match=f"{name} as {old.decode()}, found {new.decode()} in model-"
    ):
        open_checkpoint(damaged)


def test_scales_of_a_wrong_dtype_are_named(damaged):
    name = FP8.replace(".weight", ".scale")
    start = f'"{name}":{{"dtype":"'.encode()
    edit_header(shard_of(damaged, name), start + b"F8_E8M0", start + b"F8_E4M3")
    with pytest.raises(WeightsError, match=f"{name} as F8_E8M0, found F8_E4M3"):
        open_checkpoint(damaged)


@pytest.mark.parametrize("form", ["bfloat16", "float32"])
def test_plain_tensors_stand_for_quantised_ones(written, form):
    found = open_checkpoint(written(as_format(form))).found
    assert {item.format for item in found.values()} == {form}
    assert all(item.scale is None for item in found.values())


def test_a_plain_tensor_with_left_over_scales_is_refused(written):
    folder = written(
        lambda weights: [
            *changed(FP8, format="float32")(weights),
            WeightSpec(
                name=FP8.replace("weight", "scale"), shape=(2, 2), format="float32", group="x"
            ),
        ]
    )
    with pytest.raises(WeightsError, match="its weight is stored plain"):
        open_checkpoint(folder)


def test_experts_may_be_fp8_although_fp4_was_declared(written):
    def reencoded(weights):
        return [
            replace(weight, format="fp8_32x32") if weight.group == "experts" else weight
            for weight in weights
        ]

    found = open_checkpoint(written(reencoded)).found
    assert found[FP4].format == "fp8_32x32"


def test_a_dense_weight_may_not_be_fp4(written):
    with pytest.raises(WeightsError, match=f"{FP8} as F8_E4M3, found I8"):
        open_checkpoint(written(changed(FP8, format="mxfp4")))


def test_a_prefix_may_stand_before_any_name(written):
    def prefixed(weights):
        return [
            replace(weight, name=f"model.{weight.name}") if place % 2 else weight
            for place, weight in enumerate(weights)
        ]

    checkpoint = open_checkpoint(written(prefixed))
    assert checkpoint.quant(FP8).format == "fp8_32x32"


def test_a_tensor_that_stands_with_and_without_prefix_is_refused(written):
    with pytest.raises(WeightsError, match=f"asked for one tensor {NORM}, found it in"):
        open_checkpoint(written(with_extra(f"model.{NORM}", shape=(64,))))
