"""How does a checkpoint become a model that runs on the chosen components?"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from deepinfer_core.errors import WeightsError
from deepinfer_core.interfaces.transform import EngramHash, MixSpec, TransformSpec
from deepinfer_core.model.activation_widths import check_activation_widths
from deepinfer_core.model.backbone import EngramIds, TextModel
from deepinfer_core.model.backbone_layer import BackboneLayer
from deepinfer_core.model.config import ModelConfig, TextConfig
from deepinfer_core.model.context import Frequencies
from deepinfer_core.model.drafter import Drafter
from deepinfer_core.model.engram_hash import hash_constants
from deepinfer_core.model.layer_builder import LayerBuilder
from deepinfer_core.model.markov import MarkovHead
from deepinfer_core.model.operators import Linear
from deepinfer_core.model.parts import ModelParts
from deepinfer_core.model.rope import plain_frequencies, yarn_frequencies
from deepinfer_core.model.row_operators import RowOperators
from deepinfer_core.model.sparse_attention import StepAttention
from deepinfer_core.model.tensor_source import TensorSource
from deepinfer_core.model.weight_reader import WeightReader
from deepinfer_core.numeric import QuantTensor

__all__ = ["build_model"]


def build_model(
    source: TensorSource,
    parts: ModelParts,
    *,
    compressed_ids: torch.Tensor | None = None,
    progress: Callable[[str], None] | None = None,
) -> TextModel:
    """Build the text model and its drafter.

    Args:
        source: a checkpoint; each weight is asked for once.
        parts: components and numerics.
        compressed_ids: int64 [vocabulary], compressed id of each token id, for Engram layers.
        progress: called with the name of each finished part.

    Raises:
        WeightsError: there are Engram layers and no compressed ids, or a weight is missing.
        NotSupported: activations cannot be rounded at a width, or a component cannot run a width
            or format.
    """
    config = source.config
    check_activation_widths(config, parts.numerics)
    tell = progress or (lambda name: None)
    engram_ids = _engram_ids(config.text_config, compressed_ids, parts)
    weights = WeightReader(source, parts)
    common = _common(config.text_config, parts, weights)
    layers = LayerBuilder(weights, parts, config.text_config, common.rows, common.attention)
    tell("embed")
    tell("head")
    backbone = _backbone(config, layers, tell)
    drafter = _drafter(config, parts, weights, layers, common)
    if drafter is not None:
        tell("mtp")
    return TextModel(
        config=config,
        parts=parts,
        rows=common.rows,
        frequencies=common.frequencies,
        embedding=common.embedding,
        layers=backbone,
        norm_D=weights.vector("norm.weight"),
        head=common.head,
        engram_ids=engram_ids,
        drafter=drafter,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Common:
    """What backbone and drafter share."""

    rows: RowOperators
    attention: StepAttention
    frequencies: Frequencies
    embedding: QuantTensor
    head: Linear


def _common(text: TextConfig, parts: ModelParts, weights: WeightReader) -> _Common:
    rows = _row_operators(text, parts)
    return _Common(
        rows=rows,
        attention=StepAttention(
            parts, heads=text.num_attention_heads, head_width=text.head_dim, rows=rows
        ),
        frequencies=_frequencies(text, parts),
        embedding=weights.table("embed.weight"),
        head=weights.plain("head.weight", out_dtype=parts.numerics.accumulate),
    )


def _backbone(
    config: ModelConfig, layers: LayerBuilder, tell: Callable[[str], None]
) -> tuple[BackboneLayer, ...]:
    hashes = _hashes(config.text_config)
    built = []
    for plan in config.backbone_layers:
        built.append(layers.backbone(plan, hashes.get(plan.index)))
        tell(plan.prefix.removesuffix("."))
    return tuple(built)


def _row_operators(text: TextConfig, parts: ModelParts) -> RowOperators:
    spec = TransformSpec(
        hidden_width=text.hidden_size, streams=text.hc_mult, compute=parts.numerics.compute
    )
    mix = MixSpec(
        sinkhorn_iterations=text.hc_sinkhorn_iters, eps=text.hc_eps, norm_eps=text.rms_norm_eps
    )
    return RowOperators(parts.transform, spec, mix, parts.numerics, rounding=parts.rounding)


def _frequencies(text: TextConfig, parts: ModelParts) -> Frequencies:
    device, scaling = parts.device.torch_device, text.rope_scaling
    compressed_P = yarn_frequencies(
        text.qk_rope_head_dim,
        text.compress_rope_theta,
        factor=scaling.factor,
        beta_fast=scaling.beta_fast,
        beta_slow=scaling.beta_slow,
        original_max_positions=scaling.original_max_position_embeddings,
    )
    return Frequencies(
        plain_P=plain_frequencies(text.qk_rope_head_dim, text.rope_theta).to(device),
        compressed_P=compressed_P.to(device),
    )


def _engram_ids(
    text: TextConfig, compressed_ids: torch.Tensor | None, parts: ModelParts
) -> EngramIds | None:
    if not text.engram_layer_ids:
        return None
    if compressed_ids is None:
        raise WeightsError(
            "asked for a model with Engram layers, found no compressed vocabulary",
            hint="build it from the checkpoint's tokenizer.json",
        )
    return EngramIds(
        compressed_V=compressed_ids.to(parts.device.torch_device),
        pad=int(compressed_ids[text.engram_pad_token_id]),
    )


def _hashes(text: TextConfig) -> dict[int, EngramHash]:
    if not text.engram_layer_ids:
        return {}
    return hash_constants(
        layer_ids=text.engram_layer_ids,
        table_rows=text.engram_num_embeddings,
        table_size=text.engram_vocab_size,
        heads=text.engram_n_heads,
        ngram_size=text.engram_max_ngram_size,
        compressed_vocab_size=text.engram_compressed_vocab_size,
    )


def _drafter(
    config: ModelConfig,
    parts: ModelParts,
    weights: WeightReader,
    layers: LayerBuilder,
    common: _Common,
) -> Drafter | None:
    if not config.drafter_layers:
        return None
    text, wide = config.text_config, parts.numerics.accumulate
    first, last = config.drafter_layers[0].prefix, config.drafter_layers[-1].prefix
    markov = MarkovHead(
        rows=common.rows,
        embedding=weights.table(f"{last}markov_head.embed.weight"),
        head=weights.plain(f"{last}markov_head.head.weight", out_dtype=wide),
        confidence=weights.plain(f"{last}confidence_head.proj.weight", out_dtype=wide),
        temperatures=text.confidence_temperatures,
    )
    return Drafter(
        rows=common.rows,
        codec=parts.codec,
        attention=common.attention.decode,
        target_layers=text.dspark_target_layer_ids,
        frequency_P=common.frequencies.plain_P,
        window_tokens=text.sliding_window,
        block_tokens=text.dspark_block_size,
        noise_token=text.dspark_noise_token_id,
        embedding=common.embedding,
        features=weights.quantised(f"{first}main_proj.weight"),
        features_norm_D=weights.vector(f"{first}main_norm.weight"),
        layers=tuple(layers.draft(plan) for plan in config.drafter_layers),
        norm_D=weights.vector(f"{last}norm.weight"),
        head=common.head,
        markov=markov,
    )
