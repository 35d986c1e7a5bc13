"""Which configurations can this implementation run, and how is one refused?

Fixed values come first: keys that have one supported value, or a few. Then what must fit together.
Every refusal names the key, what was found and what is allowed.

Source: DeepSeek-V4.1-Flash config and the checks of its published engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deepinfer_core.model.config_reading import require
from deepinfer_core.model.sharing_rules import check_sharing

if TYPE_CHECKING:
    from deepinfer_core.model.config import ModelConfig, TextConfig

__all__ = ["check_model"]

_TOP: dict[str, tuple[Any, ...]] = {
    "architectures": (("DeepseekV41ForCausalLM",),),
    "model_type": ("deepseek_v41",),
    "dtype": ("bfloat16",),
    "tokenizer_compatibility": ("release", "native"),
}
_QUANTIZATION: dict[str, tuple[Any, ...]] = {
    "quant_method": ("fp8",),
    "activation_scheme": ("dynamic",),
    "weight_block_size": ((32, 32),),
    "scale_fmt": ("ue8m0",),
    "expert_dtype": ("fp4", "fp8"),
}
_TEXT: dict[str, tuple[Any, ...]] = {
    "model_type": ("deepseek_v41_text",),
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "attention_dropout": (0.0,),
    "tie_word_embeddings": (False,),
    "num_key_value_heads": (1,),
    "n_shared_experts": (1,),
    "scoring_func": ("sqrtsoftplus",),
    "topk_method": ("noaux_tc",),
    "norm_topk_prob": (True,),
    "hc_shifted": (True,),
    "dspark_target_attn_input": (True,),
    "candidate_block_size": (8, 16),
}
_POSITIVE = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "head_dim",
    "qk_rope_head_dim",
    "q_lora_rank",
    "o_lora_rank",
    "o_groups",
    "swiglu_limit",
    "max_position_embeddings",
    "rope_theta",
    "compress_rope_theta",
    "sliding_window",
    "index_n_heads",
    "index_head_dim",
    "index_topk",
    "candidate_topk_blocks",
    "moe_intermediate_size",
    "n_routed_experts",
    "num_experts_per_tok",
    "routed_scaling_factor",
    "hc_mult",
    "hc_sinkhorn_iters",
)
_POSITIVE_WITH_ENGRAM = (
    "engram_vocab_size",
    "engram_n_heads",
    "engram_head_dim",
    "engram_compressed_vocab_size",
)
_POSITIVE_WITH_DRAFTER = (
    "dspark_block_size",
    "dspark_markov_rank",
    "dspark_n_routed_experts",
    "dspark_num_experts_per_tok",
)
_T = "text_config."
_MOST_EXPERTS = 2**20
"""Routed experts of all layers; the published model has 15,000. Each is three tensors to list."""
_MOST_REPEATS = 1024
"""For counts of things that are written out one by one; the published ones are at most 20."""


def check_model(config: ModelConfig) -> None:
    """Refuse a configuration that this implementation cannot run.

    Raises:
        ConfigError: naming the first key that does not fit.
    """
    text = config.text_config
    _check_fixed(config, "", _TOP)
    _check_fixed(text, _T, _TEXT)
    if config.quantization_config is not None:
        _check_fixed(config.quantization_config, "quantization_config.", _QUANTIZATION)
    _check_positive(text, _POSITIVE)
    _check_packing(config)
    _check_counts(text)
    _check_angles(text)
    _check_token_ids(config)
    _check_widths(text)
    check_sharing(text)
    _check_engram(text)
    _check_drafter(text)
    _check_vision(config)


def _check_fixed(record: Any, where: str, allowed: dict[str, tuple[Any, ...]]) -> None:
    for key, values in allowed.items():
        found = getattr(record, key)
        require(found in values, where + key, found, " or ".join(str(value) for value in values))


def _check_positive(text: TextConfig, keys: Sequence[str]) -> None:
    for key in keys:
        require(getattr(text, key) > 0, _T + key, getattr(text, key), "a positive number")


def _check_packing(config: ModelConfig) -> None:
    """Two FP4 codes share a byte, along the inputs of an expert's products."""
    if config.quantization_config is None or config.quantization_config.expert_dtype != "fp4":
        return
    for key in ("hidden_size", "moe_intermediate_size"):
        found = getattr(config.text_config, key)
        require(found % 2 == 0, _T + key, found, "an even number, as experts are FP4")


def _check_counts(text: TextConfig) -> None:
    """What would take all memory to list, before anything is listed."""
    repeats = ("hc_mult", "hc_sinkhorn_iters", "engram_max_ngram_size", "engram_n_heads")
    for key in (*repeats, "dspark_block_size", "num_nextn_predict_layers"):
        found = getattr(text, key)
        require(0 <= found <= _MOST_REPEATS, _T + key, found, f"at most {_MOST_REPEATS}")
    for key, layers in (
        ("n_routed_experts", text.num_hidden_layers),
        ("dspark_n_routed_experts", text.num_nextn_predict_layers),
    ):
        found = getattr(text, key)
        allowed = f"at most {_MOST_EXPERTS} in all layers"
        require(found * layers <= _MOST_EXPERTS, _T + key, found, allowed)
    for key in ("rms_norm_eps", "hc_eps"):
        require(0 <= getattr(text, key) < 1, _T + key, getattr(text, key), "a number from 0 to 1")


def _check_angles(text: TextConfig) -> None:
    scaling, where = text.rope_scaling, f"{_T}rope_scaling."
    require(scaling.rope_type == "yarn", f"{where}rope_type", scaling.rope_type, "yarn")
    for key in ("rope_theta", "compress_rope_theta"):
        require(getattr(text, key) > 1, _T + key, getattr(text, key), "a number above 1")
    for key in ("factor", "beta_slow", "original_max_position_embeddings"):
        require(getattr(scaling, key) > 0, where + key, getattr(scaling, key), "a positive number")
    require(
        scaling.beta_fast > scaling.beta_slow,
        f"{where}beta_fast",
        scaling.beta_fast,
        f"more turns than beta_slow = {scaling.beta_slow}",
    )


def _check_token_ids(config: ModelConfig) -> None:
    vocabulary = config.text_config.vocab_size
    for key in ("bos_token_id", "eos_token_id", "pad_token_id", "image_token_id"):
        found = getattr(config, key)
        require(found is None or 0 <= found < vocabulary, key, found, f"an id below {vocabulary}")


def _check_widths(text: TextConfig) -> None:
    heads, rope = text.num_attention_heads, text.qk_rope_head_dim
    require(
        heads % text.o_groups == 0, f"{_T}o_groups", text.o_groups, f"a divisor of {heads} heads"
    )
    require(
        rope % 2 == 0 and rope <= min(text.head_dim, text.index_head_dim),
        f"{_T}qk_rope_head_dim",
        rope,
        "an even number up to head_dim and index_head_dim",
    )
    chosen = text.num_experts_per_tok
    require(
        chosen <= text.n_routed_experts,
        f"{_T}num_experts_per_tok",
        chosen,
        f"at most n_routed_experts = {text.n_routed_experts}",
    )


def _check_engram(text: TextConfig) -> None:
    if not text.engram_layer_ids:
        return
    _check_positive(text, _POSITIVE_WITH_ENGRAM)
    rows, layers = text.engram_num_embeddings, text.engram_layer_ids
    require(
        len(rows) == len(layers) and min(rows, default=0) > 0,
        f"{_T}engram_num_embeddings",
        list(rows),
        f"a positive row count for each of {list(layers)}",
    )
    order = text.engram_max_ngram_size
    require(order >= 2, f"{_T}engram_max_ngram_size", order, "at least 2")
    pad = text.engram_pad_token_id
    require(0 <= pad < text.vocab_size, f"{_T}engram_pad_token_id", pad, "an id below vocab_size")


def _check_drafter(text: TextConfig) -> None:
    if not text.num_nextn_predict_layers:
        return
    _check_positive(text, _POSITIVE_WITH_DRAFTER)
    noise, chosen = text.dspark_noise_token_id, text.dspark_num_experts_per_tok
    require(
        0 <= noise < text.vocab_size, f"{_T}dspark_noise_token_id", noise, "an id below vocab_size"
    )
    require(
        bool(text.dspark_target_layer_ids), f"{_T}dspark_target_layer_ids", [], "at least one layer"
    )
    require(
        chosen <= text.dspark_n_routed_experts,
        f"{_T}dspark_num_experts_per_tok",
        chosen,
        f"at most dspark_n_routed_experts = {text.dspark_n_routed_experts}",
    )
    temperatures = text.confidence_temperatures
    require(
        len(temperatures) == text.dspark_block_size and min(temperatures) > 0,
        f"{_T}dspark_confidence_temperature",
        list(temperatures),
        f"a positive number, or {text.dspark_block_size} of them (dspark_block_size)",
    )


def _check_vision(config: ModelConfig) -> None:
    vision = config.vision_config
    if vision is None:
        return
    require(
        config.image_token_id is not None,
        "image_token_id",
        None,
        "an id, as there is a vision_config",
    )
    require(
        vision.model_type == "deepseek_v41_vision",
        "vision_config.model_type",
        vision.model_type,
        "deepseek_v41_vision",
    )
    heads = vision.num_attention_heads
    require(
        heads > 0 and vision.hidden_size % (4 * heads) == 0,
        "vision_config.num_attention_heads",
        heads,
        "a number whose head width, hidden_size / num_attention_heads, is a multiple of 4",
    )
