"""Which tensors must a checkpoint of a given configuration hold, with which shapes and formats?

A *weight* is what the network uses; a *stored tensor* is what a file holds. A quantised weight
``X.weight`` is stored as two tensors, ``X.weight`` and ``X.scale``. Names carry no ``model.``
prefix here. Everything is a pure function of the configuration and imports no torch.

Source: DeepSeek-V4.1-Flash checkpoint; the full table gives 96,085 stored tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from deepinfer_core.model.config import ModelConfig, TextConfig, VisionConfig
from deepinfer_core.model.layer_plan import LayerPlan

__all__ = ["DTYPE_BYTES", "GROUPS", "Manifest", "StoredTensor", "WeightSpec", "manifest_of"]

DTYPE_BYTES: Mapping[str, int] = {
    "F64": 8,
    "I64": 8,
    "F32": 4,
    "I32": 4,
    "BF16": 2,
    "F16": 2,
    "I16": 2,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "F8_E8M0": 1,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
}

GROUPS = ("experts", "layers", "compressor", "indexer", "engram", "global", "drafter", "vision")

_PLAIN_DTYPES = {"bfloat16": "BF16", "float32": "F32"}
_GROUP_CHANNELS = 32  # channels that share a scale in every quantised format of a checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """One tensor of a file: its dtype in safetensors' spelling, and its shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of its data."""
        return prod(self.shape) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSpec:
    """One weight of the network.

    Attributes:
        name: as in the checkpoint.
        shape: in values, whatever the packing.
        format: a name of ``numeric.formats``.
        group: one of ``GROUPS``.
    """

    name: str
    shape: tuple[int, ...]
    format: str
    group: str

    @property
    def scale_name(self) -> str:
        """Name of the scales that belong to the weight, if it is quantised."""
        return f"{self.name.removesuffix('.weight')}.scale"

    def stored(self, format_name: str | None = None) -> tuple[StoredTensor, ...]:
        """The tensors that hold it: one if plain, data and scales otherwise.

        Args:
            format_name: another format than its own.
        """
        form = format_name or self.format
        if form in _PLAIN_DTYPES:
            return (StoredTensor(name=self.name, dtype=_PLAIN_DTYPES[form], shape=self.shape),)
        *leading, rows, columns = self.shape
        groups = -(-columns // _GROUP_CHANNELS)
        scale_rows = -(-rows // _GROUP_CHANNELS) if form == "fp8_32x32" else rows
        dtype, width = ("I8", columns // 2) if form == "mxfp4" else ("F8_E4M3", columns)
        return (
            StoredTensor(name=self.name, dtype=dtype, shape=(*leading, rows, width)),
            StoredTensor(
                name=self.scale_name, dtype="F8_E8M0", shape=(*leading, scale_rows, groups)
            ),
        )


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """All weights of a configuration, by name, in the order of the network."""

    weights: Mapping[str, WeightSpec]

    @cached_property
    def stored(self) -> Mapping[str, StoredTensor]:
        """All stored tensors by name."""
        return {item.name: item for weight in self.weights.values() for item in weight.stored()}

    @property
    def nbytes(self) -> int:
        """Bytes of the data of all stored tensors."""
        return sum(item.nbytes for item in self.stored.values())

    def by_group(self) -> dict[str, tuple[int, int]]:
        """Stored tensors and bytes of each group that is present, in the order of ``GROUPS``."""
        totals = dict.fromkeys(GROUPS, (0, 0))
        for weight in self.weights.values():
            count, size = totals[weight.group]
            stored = weight.stored()
            added = sum(item.nbytes for item in stored)
            totals[weight.group] = (count + len(stored), size + added)
        return {group: total for group, total in totals.items() if total[0]}


def manifest_of(config: ModelConfig) -> Manifest:
    """List every weight that a checkpoint with this configuration holds."""
    quantised = config.quantization_config is not None
    weights = {}
    for name, shape, form, group in _all_weights(config):
        kept = form if quantised or form == "float32" else "bfloat16"
        weights[name] = WeightSpec(name=name, shape=shape, format=kept, group=group)
    return Manifest(weights=weights)


_Row = tuple[str, tuple[int, ...], str, str]
_FP8, _BF16, _F32 = "fp8_32x32", "bfloat16", "float32"


def _all_weights(config: ModelConfig) -> Iterator[_Row]:
    text = config.text_config
    hidden = text.hidden_size
    yield "embed.weight", (text.vocab_size, hidden), _BF16, "global"
    experts = config.quantization_config.expert_dtype if config.quantization_config else "fp4"
    for layer in config.layers:
        yield from _layer(text, layer)
        yield from _shared_keys(text, layer)
        yield from _experts(text, layer, _FP8 if experts == "fp8" else "mxfp4")
    yield from _drafter(config)
    yield "norm.weight", (hidden,), _BF16, "global"
    yield "head.weight", (text.vocab_size, hidden), _BF16, "global"
    if config.vision_config is not None:
        for name in ("image_start", "image_end", "image_newline"):
            yield name, (hidden,), _BF16, "global"
        yield from _vision(config.vision_config, hidden)


def _layer(text: TextConfig, layer: LayerPlan) -> Iterator[_Row]:
    """The part that every layer of backbone and drafter has."""
    p, group, d, lora = layer.prefix, "layers", text.hidden_size, text.q_lora_rank
    queries = text.num_attention_heads * text.head_dim
    latent = text.o_groups * text.o_lora_rank
    yield f"{p}attn.wq_a.weight", (lora, d), _FP8, group
    yield f"{p}attn.wq_b.weight", (queries, lora), _FP8, group
    yield f"{p}attn.wkv.weight", (text.head_dim, d), _FP8, group
    yield f"{p}attn.wo_a.weight", (latent, queries // text.o_groups), _FP8, group
    yield f"{p}attn.wo_b.weight", (d, latent), _FP8, group
    yield f"{p}attn.q_norm.weight", (lora,), _BF16, group
    yield f"{p}attn.kv_norm.weight", (text.head_dim,), _BF16, group
    yield f"{p}attn.attn_sink", (text.num_attention_heads,), _F32, group
    for sublayer in ("attn", "ffn"):
        mixes = (2 + text.hc_mult) * text.hc_mult
        yield f"{p}{sublayer}_norm.weight", (d,), _BF16, group
        yield f"{p}hc_{sublayer}_fn", (mixes, text.hc_mult * d), _F32, group
        yield f"{p}hc_{sublayer}_base", (mixes,), _F32, group
        yield f"{p}hc_{sublayer}_scale", (3,), _F32, group
    yield f"{p}ffn.gate.weight", (layer.routed_experts, d), _BF16, group
    yield f"{p}ffn.gate.bias", (layer.routed_experts,), _F32, group
    yield f"{p}ffn.gate.bias_vl", (layer.routed_experts,), _F32, group
    yield from _feed_forward(text, f"{p}ffn.shared_experts.", _FP8, group)


def _feed_forward(text: TextConfig, prefix: str, form: str, group: str) -> Iterator[_Row]:
    wide, narrow = text.hidden_size, text.moe_intermediate_size
    yield f"{prefix}w1.weight", (narrow, wide), form, group
    yield f"{prefix}w2.weight", (wide, narrow), form, group
    yield f"{prefix}w3.weight", (narrow, wide), form, group


def _experts(text: TextConfig, layer: LayerPlan, form: str) -> Iterator[_Row]:
    for expert in range(layer.routed_experts):
        yield from _feed_forward(text, f"{layer.prefix}ffn.experts.{expert}.", form, "experts")


def _shared_keys(text: TextConfig, layer: LayerPlan) -> Iterator[_Row]:
    """Compressor, indexer and Engram, where a layer has them."""
    p, d, width = f"{layer.prefix}attn.", text.hidden_size, text.index_head_dim
    if layer.has_compressor:
        yield f"{p}compressor.wkv.weight", (text.head_dim, d), _BF16, "compressor"
        if layer.has_compressor_gate:
            yield f"{p}compressor.wgate.weight", (text.head_dim, d), _BF16, "compressor"
        yield f"{p}compressor.norm.weight", (text.head_dim,), _BF16, "compressor"
    if layer.has_index_keys:
        yield f"{p}indexer.wk.weight", (width, text.head_dim), _BF16, "indexer"
        yield f"{p}indexer.k_norm.weight", (width,), _BF16, "indexer"
    if layer.has_indexer:
        queries = text.index_n_heads * width
        yield f"{p}indexer.wq_b.weight", (queries, text.q_lora_rank), _FP8, "indexer"
        yield f"{p}indexer.weights_proj.weight", (text.index_n_heads, d), _BF16, "indexer"
    if layer.has_engram:
        p = f"{layer.prefix}engram."
        rows = text.engram_num_embeddings[text.engram_layer_ids.index(layer.index)]
        row = text.engram_columns * text.engram_head_dim
        streams = text.hc_mult
        yield f"{p}embed.weight", (rows, text.engram_head_dim), "mxfp8", "engram"
        yield f"{p}wkv.weight", ((streams + 1) * d, row), _FP8, "engram"
        yield f"{p}q_weight", (streams, d), _BF16, "engram"
        yield f"{p}k_weight", (streams, d), _BF16, "engram"


def _drafter(config: ModelConfig) -> Iterator[_Row]:
    if not config.drafter_layers:
        return
    text, d = config.text_config, config.text_config.hidden_size
    first, last = config.drafter_layers[0].prefix, config.drafter_layers[-1].prefix
    rank, features = text.dspark_markov_rank, len(text.dspark_target_layer_ids) * d
    yield f"{first}main_proj.weight", (d, features), _FP8, "drafter"
    yield f"{first}main_norm.weight", (d,), _BF16, "drafter"
    yield f"{last}norm.weight", (d,), _BF16, "drafter"
    yield f"{last}markov_head.embed.weight", (text.vocab_size, rank), _BF16, "drafter"
    yield f"{last}markov_head.head.weight", (text.vocab_size, rank), _BF16, "drafter"
    yield f"{last}confidence_head.proj.weight", (1, d + rank), _BF16, "drafter"


def _vision(vision: VisionConfig, text_hidden: int) -> Iterator[_Row]:
    d, inner = vision.hidden_size, vision.intermediate_size
    cell = vision.downsample_ratio**2 * d
    biased: list[tuple[str, int, int]] = [("vision.patch_embed.proj", d, 3 * vision.patch_size**2)]
    plain: list[tuple[str, tuple[int, ...]]] = [("vision.norm", (d,))]
    for block in range(vision.num_hidden_layers):
        p = f"vision.blocks.{block}."
        plain += [(f"{p}norm1", (d,)), (f"{p}norm2", (d,))]
        plain += [(f"{p}mlp.w1", (2 * inner, d)), (f"{p}mlp.w2", (d, inner))]
        biased += [(f"{p}attn.wqkv", 3 * d, d), (f"{p}attn.wo", d, d)]
    biased += [("aligner.w1", text_hidden, cell), ("aligner.w2", text_hidden, text_hidden)]
    for name, shape in plain:
        yield f"{name}.weight", shape, _BF16, "vision"
    for name, rows, columns in biased:
        yield f"{name}.weight", (rows, columns), _BF16, "vision"
        yield f"{name}.bias", (rows,), _BF16, "vision"
