"""Does a model take what it needs from a checkpoint, once, and refuse what it cannot use?"""

from collections import Counter
from dataclasses import dataclass, replace

import pytest
import torch
from deepinfer_core.errors import NotSupported, WeightsError
from deepinfer_core.interfaces.numerics import Numerics
from deepinfer_core.model.builder import build_model
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.model.evaluate import score_logits
from deepinfer_core.model.weight_reader import stacked
from deepinfer_core.numeric import QuantTensor, quantise
from deepinfer_core.reference.transform import ReferenceTransform
from deepinfer_core.testing.bits import assert_same_bits
from deepinfer_core.testing.tiny import golden_tokens, golden_weights, tiny_test_config
from deepinfer_core.testing.tiny_model import PlainWeights, reference_parts, tiny_model

IDS = torch.arange(4096) % 4000
SEMANTIC = Numerics(compute="float32", activation_quantisation=False, cache_quantisation=False)


@dataclass(frozen=True, kw_only=True)
class CountedWeights(PlainWeights):
    """Counts what is asked for."""

    asked: Counter[str]

    def tensor(self, name: str) -> torch.Tensor:
        self.asked[name] += 1
        return super().tensor(name)

    def quant(self, name: str) -> QuantTensor:
        self.asked[name] += 1
        return super().quant(name)

    def experts(self, prefix: str) -> tuple[QuantTensor, QuantTensor]:
        self.asked.update(name for name in self.tensors if name.startswith(f"{prefix}."))
        return super().experts(prefix)


def test_every_weight_is_asked_for_once(short_config: ModelConfig) -> None:
    asked: Counter[str] = Counter()
    weights = golden_weights(short_config)
    source = CountedWeights(config=short_config, tensors=weights, asked=asked)
    build_model(source, reference_parts(SEMANTIC), compressed_ids=IDS)
    assert asked == Counter(dict.fromkeys(weights, 1))


class Scaling(ReferenceTransform):
    """Keeps projections of mixes as their double, and counts how many it was given."""

    def __init__(self) -> None:
        self.prepared = 0

    def prepare_mixes(self, fn_MK: torch.Tensor) -> torch.Tensor:
        self.prepared += 1
        return 2 * fn_MK

    def mhc_mixes(self, plan, trunk_TSD, projection, *rest):  # type: ignore[no-untyped-def]
        super().mhc_mixes(plan, trunk_TSD, projection / 2, *rest)


def test_projections_of_mixes_are_prepared_once_each(short_config: ModelConfig) -> None:
    """And what a component makes of them is what it is called with."""
    source = PlainWeights(config=short_config, tensors=golden_weights(short_config))
    scaling = Scaling()
    model = build_model(
        source, replace(reference_parts(SEMANTIC), transform=scaling), compressed_ids=IDS
    )
    prepared = scaling.prepared
    assert prepared == sum(name.endswith("_fn") for name in source.tensors)
    got = score_logits(model, golden_tokens(8))
    assert scaling.prepared == prepared
    plain = build_model(source, reference_parts(SEMANTIC), compressed_ids=IDS)
    assert_same_bits(got, score_logits(plain, golden_tokens(8)))


def test_progress_names_every_part(short_config: ModelConfig) -> None:
    told: list[str] = []
    source = PlainWeights(config=short_config, tensors=golden_weights(short_config))
    build_model(source, reference_parts(SEMANTIC), compressed_ids=IDS, progress=told.append)
    layers = [f"layers.{number}" for number in range(6)]
    assert told == ["embed", "head", *layers, "mtp"]


def test_engram_layers_need_a_compressed_vocabulary(short_config: ModelConfig) -> None:
    source = PlainWeights(config=short_config, tensors=golden_weights(short_config))
    with pytest.raises(WeightsError, match="found no compressed vocabulary"):
        build_model(source, reference_parts(SEMANTIC))


def test_a_model_without_memory_and_drafter_is_built_from_less() -> None:
    config = tiny_test_config(
        engram_layer_ids=[],
        engram_num_embeddings=[],
        compress_ratios=[0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1],
        num_nextn_predict_layers=0,
        dspark_target_layer_ids=[],
    )
    source = PlainWeights(config=config, tensors=golden_weights(config))
    model = build_model(source, reference_parts(SEMANTIC))
    assert model.drafter is None
    assert score_logits(model, golden_tokens(8)).shape == (8, 4096)


def test_the_drafter_does_not_change_the_backbone(short_config: ModelConfig) -> None:
    model = tiny_model(SEMANTIC, config=short_config)
    weights = {
        name: value + 1 if name.startswith("mtp.") else value
        for name, value in golden_weights(short_config).items()
    }
    other = tiny_model(SEMANTIC, config=short_config, weights=weights)
    tokens = golden_tokens(30)
    assert torch.equal(score_logits(model, tokens), score_logits(other, tokens))


def test_quantised_weights_give_what_their_widened_values_give(short_config: ModelConfig) -> None:
    class QuantisedWeights(PlainWeights):
        def quant(self, name: str) -> QuantTensor:
            weight = super().quant(name)
            is_dense = ".attn.w" in name or "shared_experts" in name or "engram.wkv" in name
            if name.endswith("engram.embed.weight"):
                return quantise(weight.data, "mxfp8")
            return quantise(weight.data, "fp8_32x32") if is_dense else weight

        def experts(self, prefix: str) -> tuple[QuantTensor, QuantTensor]:
            first, second = super().experts(prefix)
            return quantise(first.data, "mxfp4"), quantise(second.data, "mxfp4")

    class WidenedWeights(QuantisedWeights):
        def quant(self, name: str) -> QuantTensor:
            return widened(super().quant(name))

        def experts(self, prefix: str) -> tuple[QuantTensor, QuantTensor]:
            first, second = super().experts(prefix)
            return widened(first), widened(second)

    weights = golden_weights(short_config)
    logits = [
        score_logits(
            build_model(
                kind(config=short_config, tensors=weights),
                reference_parts(Numerics()),
                compressed_ids=IDS,
            ),
            golden_tokens(20),
        )
        for kind in (QuantisedWeights, WidenedWeights)
    ]
    assert torch.equal(*logits)


def widened(weight: QuantTensor) -> QuantTensor:
    return QuantTensor(data=weight.dequantise(torch.float32), scale=None, format="float32")


@pytest.mark.parametrize("form", ["fp8_32x32", "mxfp8", "bfloat16"])
def test_stacked_weights_hold_one_above_the_other(form: str) -> None:
    first, second = (torch.linspace(-1, 2, 64 * 32).view(64, 32) * factor for factor in (1, 50))
    both = stacked([quantise(first, form), quantise(second, form)])
    expected = [quantise(weight, form).dequantise() for weight in (first, second)]
    assert torch.equal(both.dequantise(), torch.cat(expected))


def test_weights_that_share_scales_are_not_cut_inside_a_block() -> None:
    ragged = quantise(torch.ones(40, 32), "fp8_32x32")
    with pytest.raises(NotSupported, match="blocks of 32 rows"):
        stacked([ragged, ragged])


def test_weights_of_different_formats_are_not_stacked() -> None:
    weights = [quantise(torch.ones(32, 32), form) for form in ("fp8_32x32", "bfloat16")]
    with pytest.raises(NotSupported, match="bfloat16"):
        stacked(weights)
