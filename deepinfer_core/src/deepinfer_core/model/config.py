"""What does a checkpoint's ``config.json`` say about the model?

The keys keep their published names, so that a value can be followed from the file to the code.
Reading is strict: a missing key, a wrong type, an unknown key or a value that this implementation
does not support is a ``ConfigError`` that names the key, what was found and what is allowed.
Nothing here imports torch. Which layer plays which part is worked out in ``layer_plan``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from deepinfer_core.errors import ConfigError
from deepinfer_core.model.config_reading import read_record, unique_keys, write_record
from deepinfer_core.model.config_rules import check_model
from deepinfer_core.model.layer_plan import LayerPlan, plan_layers

__all__ = ["ModelConfig", "QuantizationConfig", "RopeScaling", "TextConfig", "VisionConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """YaRN correction of the compressed layers' frequencies (no attention temperature)."""

    rope_type: str
    factor: float
    beta_fast: float
    beta_slow: float
    original_max_position_embeddings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizationConfig:
    """Formats of the checkpoint's quantised tensors; only the published combination is supported.

    ``expert_dtype`` may also be ``fp8``, for checkpoints whose experts were re-encoded.
    """

    quant_method: str
    activation_scheme: str
    weight_block_size: tuple[int, ...]
    scale_fmt: str
    expert_dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionConfig:
    """The vision tower; sizes in pixels and patches."""

    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    intermediate_size: int
    patch_size: int
    downsample_ratio: int
    max_image_tokens: int
    min_pixels: int
    rope_theta: float = 10000.0
    max_wh_ratio: float | None = None
    model_type: str = "deepseek_v41_vision"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextConfig:
    """The text model, the Engram memory and the drafter.

    Optional keys have the defaults that the published engine uses for an absent key. Without
    ``engram_layer_ids`` there is no memory, without ``num_nextn_predict_layers`` no drafter.
    """

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    head_dim: int
    qk_rope_head_dim: int
    q_lora_rank: int
    o_lora_rank: int
    o_groups: int
    swiglu_limit: float
    rms_norm_eps: float
    max_position_embeddings: int
    rope_theta: float
    compress_rope_theta: float
    rope_scaling: RopeScaling
    sliding_window: int
    compress_ratios: tuple[int, ...]
    kv_source_layer_ids: tuple[int, ...]
    index_source_layer_ids: tuple[int, ...]
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    candidate_source_layer_id: int
    candidate_topk_blocks: int
    candidate_block_size: int
    moe_intermediate_size: int
    n_routed_experts: int
    num_experts_per_tok: int
    routed_scaling_factor: float
    hc_mult: int
    hc_sinkhorn_iters: int
    hc_eps: float

    n_shared_experts: int = 1
    num_key_value_heads: int = 1
    hidden_act: str = "silu"
    attention_bias: bool = False
    attention_dropout: float = 0.0
    tie_word_embeddings: bool = False
    scoring_func: str = "sqrtsoftplus"
    topk_method: str = "noaux_tc"
    norm_topk_prob: bool = True
    initializer_range: float = 0.02
    use_cache: bool = True
    model_type: str = "deepseek_v41_text"

    hc_shifted: bool = True
    use_fp4_sparse_kv: bool = True
    index_k_source_layer_ids: tuple[int, ...] | None = None

    engram_layer_ids: tuple[int, ...] = ()
    engram_num_embeddings: tuple[int, ...] = ()
    engram_max_ngram_size: int = 0
    engram_vocab_size: int = 0
    engram_n_heads: int = 0
    engram_head_dim: int = 0
    engram_pad_token_id: int = field(default=2, metadata={"alias": "engram_pad_id"})
    engram_compressed_vocab_size: int = 0

    num_nextn_predict_layers: int = 0
    dspark_block_size: int = 0
    dspark_noise_token_id: int = 0
    dspark_target_layer_ids: tuple[int, ...] = ()
    dspark_target_attn_input: bool = True
    dspark_markov_rank: int = 0
    dspark_n_routed_experts: int = 0
    dspark_num_experts_per_tok: int = 0
    dspark_confidence_temperature: float | tuple[float, ...] = 1.0

    @property
    def index_key_layers(self) -> tuple[int, ...]:
        """Layers that own index keys: by default those that own compressed entries."""
        if self.index_k_source_layer_ids is None:
            return self.kv_source_layer_ids
        return self.index_k_source_layer_ids

    @property
    def engram_columns(self) -> int:
        """Table rows looked up a token and layer: one for each n-gram size from 2 on, and head."""
        return (
            (self.engram_max_ngram_size - 1) * self.engram_n_heads if self.engram_layer_ids else 0
        )

    @property
    def confidence_temperatures(self) -> tuple[float, ...]:
        """One temperature for each position of a draft block."""
        value = self.dspark_confidence_temperature
        return value if isinstance(value, tuple) else (value,) * self.dspark_block_size


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A validated ``config.json``.

    Attributes:
        quantization_config: None describes a checkpoint whose tensors are all plain.
        vision_config: None describes a text-only checkpoint, without image vectors.
        image_token_id: required with ``vision_config``.
    """

    text_config: TextConfig
    architectures: tuple[str, ...] = ("DeepseekV41ForCausalLM",)
    model_type: str = "deepseek_v41"
    dtype: str = "bfloat16"
    bos_token_id: int = 0
    eos_token_id: int = 1
    pad_token_id: int = 2
    image_token_id: int | None = None
    tokenizer_compatibility: str = "release"
    quantization_config: QuantizationConfig | None = None
    vision_config: VisionConfig | None = None

    def __post_init__(self) -> None:
        check_model(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ModelConfig:
        """Read a parsed ``config.json``.

        Raises:
            ConfigError: a key is missing, unknown or of the wrong type, or a value is unsupported.
        """
        return read_record(cls, data, where="")

    @classmethod
    def from_file(cls, path: Path | str) -> ModelConfig:
        """Read ``config.json``, or the file of that name in a folder.

        Raises:
            ConfigError: there is no such file, it is not JSON, or as in ``from_dict``.
        """
        file = Path(path)
        if file.is_dir():
            file = file / "config.json"
        try:
            data = json.loads(file.read_bytes(), object_pairs_hook=unique_keys)
        except OSError as error:
            raise ConfigError(
                f"asked for the model configuration {file}, found {error.strerror or error}",
                hint="name a config.json or the folder of a checkpoint",
            ) from error
        except (ValueError, RecursionError) as error:
            raise ConfigError(
                f"asked for the model configuration {file}, found no JSON: {error}",
                hint="copy the file again from its source",
            ) from error
        return cls.from_dict(data)

    def to_dict(self) -> dict[str, Any]:
        """Give back what ``from_dict`` reads; absent optional parts stay absent."""
        return write_record(self)

    @cached_property
    def layers(self) -> tuple[LayerPlan, ...]:
        """The part of each layer: the backbone in order, then the drafter."""
        return plan_layers(self.text_config)

    @property
    def backbone_layers(self) -> tuple[LayerPlan, ...]:
        """The layers that every token passes."""
        return self.layers[: self.text_config.num_hidden_layers]

    @property
    def drafter_layers(self) -> tuple[LayerPlan, ...]:
        """The layers of the drafter; empty without one."""
        return self.layers[self.text_config.num_hidden_layers :]

    @cached_property
    def boundary_layer(self) -> int:
        """First layer of the decoder half: the first one with ratio 1."""
        return self.text_config.compress_ratios.index(1)

    @property
    def verified_rows(self) -> int:
        """Rows a sequence can feed in one decode step: the last token and a block of drafts."""
        return self.text_config.dspark_block_size + 1 if self.drafter_layers else 1

    @property
    def ring_tokens(self) -> int:
        """Length of a window ring; the slot of position p is p mod this.

        A step writes up to ``verified_rows`` positions while its first row sees a full window.
        """
        return self.text_config.sliding_window + self.verified_rows
