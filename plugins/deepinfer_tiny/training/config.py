"""Which sizes does the network have, and how are they written to ``config.json``?

Only the keys that vary are fields; keys with one legal value in V4.1 are constants of
`ModelConfig.to_hf`. The shape of the file follows the public DeepSeek-V4.1-Flash config.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

__all__ = ["TINY", "UNIT", "ModelConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Sizes of one V4.1 text model; field names are the keys of ``text_config``."""

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
    yarn_factor: float
    yarn_original_tokens: int
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
    engram_layer_ids: tuple[int, ...]
    engram_num_embeddings: tuple[int, ...]
    engram_max_ngram_size: int
    engram_vocab_size: int
    engram_n_heads: int
    engram_head_dim: int
    engram_pad_token_id: int
    engram_compressed_vocab_size: int
    num_nextn_predict_layers: int
    dspark_block_size: int
    dspark_noise_token_id: int
    dspark_target_layer_ids: tuple[int, ...]
    dspark_markov_rank: int
    dspark_n_routed_experts: int
    dspark_num_experts_per_tok: int
    bos_token_id: int
    eos_token_id: int
    pad_token_id: int

    def source(self, ids: tuple[int, ...], layer: int) -> int | None:
        """Largest id that is <= ``layer``; None when the layer has no compressed keys."""
        if self.compress_ratios[layer] == 0:
            return None
        return max(i for i in ids if i <= layer)

    @property
    def boundary(self) -> int:
        """First decoder layer: the first one of ratio 1."""
        return self.compress_ratios.index(1)

    @property
    def engram_columns(self) -> int:
        """Table rows that one token reads in one Engram layer."""
        return (self.engram_max_ngram_size - 1) * self.engram_n_heads

    def to_hf(self, confidence_temperature: list[float] | None = None) -> dict[str, object]:
        """The content of ``config.json``.

        Args:
            confidence_temperature: one divisor of the confidence logit for each draft position,
                stored under the extra key ``dspark_confidence_temperature``.
        """
        text: dict[str, object] = {"model_type": "deepseek_v41_text", **dataclasses.asdict(self)}
        factor, original = text.pop("yarn_factor"), text.pop("yarn_original_tokens")
        text["rope_scaling"] = {
            "rope_type": "yarn",
            "factor": factor,
            "beta_fast": 32,
            "beta_slow": 1,
            "original_max_position_embeddings": original,
        }
        special = {k: text.pop(k) for k in ("bos_token_id", "eos_token_id", "pad_token_id")}
        text.update(_FIXED_TEXT)
        if confidence_temperature is not None:
            text["dspark_confidence_temperature"] = confidence_temperature
        return {
            "architectures": ["DeepseekV41ForCausalLM"],
            "model_type": "deepseek_v41",
            "dtype": "bfloat16",
            **special,
            "quantization_config": {
                "quant_method": "fp8",
                "activation_scheme": "dynamic",
                "weight_block_size": [32, 32],
                "scale_fmt": "ue8m0",
                "expert_dtype": "fp4",
            },
            "text_config": text,
        }


_FIXED_TEXT = {
    "num_key_value_heads": 1,
    "hidden_act": "silu",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
    "n_shared_experts": 1,
    "scoring_func": "sqrtsoftplus",
    "topk_method": "noaux_tc",
    "norm_topk_prob": True,
    "initializer_range": 0.02,
    "use_cache": True,
}

_COMMON = {
    "vocab_size": 4096,
    "head_dim": 64,
    "qk_rope_head_dim": 16,
    "o_groups": 2,
    "swiglu_limit": 10.0,
    "rms_norm_eps": 1e-20,
    "rope_theta": 10000.0,
    "compress_rope_theta": 160000.0,
    "yarn_factor": 4.0,
    "index_n_heads": 8,
    "index_head_dim": 32,
    "candidate_block_size": 8,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "routed_scaling_factor": 1.5,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "hc_eps": 1e-6,
    "engram_max_ngram_size": 4,
    "engram_n_heads": 2,
    "engram_head_dim": 32,
    "num_nextn_predict_layers": 3,
    "dspark_block_size": 5,
    "dspark_n_routed_experts": 4,
    "dspark_num_experts_per_tok": 2,
}

# The shipped model. The row counts and the compressed vocabulary follow from the tokenizer
# file through `ngram.build`; a test compares them.
TINY = ModelConfig(
    **_COMMON,
    hidden_size=256,
    num_hidden_layers=8,
    num_attention_heads=8,
    q_lora_rank=128,
    o_lora_rank=64,
    max_position_embeddings=8192,
    yarn_original_tokens=2048,
    sliding_window=128,
    compress_ratios=(0, 0, 2, 2, 1, 1, 1, 1, 0, 0, 0),
    kv_source_layer_ids=(2, 4),
    index_source_layer_ids=(2, 4, 6),
    index_topk=64,
    candidate_source_layer_id=4,
    candidate_topk_blocks=32,
    moe_intermediate_size=128,
    engram_layer_ids=(1, 3),
    engram_num_embeddings=(12436, 12672),
    engram_vocab_size=2048,
    engram_pad_token_id=4079,
    engram_compressed_vocab_size=3345,
    dspark_noise_token_id=4079,
    dspark_target_layer_ids=(5, 6, 7),
    dspark_markov_rank=64,
    bos_token_id=4077,
    eos_token_id=4078,
    pad_token_id=4079,
)

# The published unit-test sizes, for which golden logits are known.
UNIT = ModelConfig(
    **_COMMON,
    hidden_size=128,
    num_hidden_layers=12,
    num_attention_heads=4,
    q_lora_rank=64,
    o_lora_rank=32,
    max_position_embeddings=2048,
    yarn_original_tokens=512,
    sliding_window=16,
    compress_ratios=(0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 0, 0, 0),
    kv_source_layer_ids=(2, 4, 6),
    index_source_layer_ids=(2, 4, 6, 8, 10),
    index_topk=16,
    candidate_source_layer_id=6,
    candidate_topk_blocks=8,
    moe_intermediate_size=64,
    engram_layer_ids=(1, 4),
    engram_num_embeddings=(1618, 1824),
    engram_vocab_size=256,
    engram_pad_token_id=2,
    engram_compressed_vocab_size=4000,
    dspark_noise_token_id=4095,
    dspark_target_layer_ids=(9, 10, 11),
    dspark_markov_rank=16,
    bos_token_id=0,
    eos_token_id=1,
    pad_token_id=2,
)
