"""Which small model do tests compute with, and what are its reference weights?

The model has every feature of DeepSeek-V4.1-Flash at a size that a processor handles in a
fraction of a second: 12 layers, 5.9 million parameters, a window of 16. The weights follow from
two seeds; the outputs that belong to them are known from independent implementations.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from deepinfer_core.model.config import ModelConfig
from deepinfer_core.weights.manifest import WeightSpec, manifest_of

__all__ = ["golden_tokens", "golden_vision_weights", "golden_weights", "tiny_test_config"]

_TEXT_SEED = 20260910
_VISION_SEED = 20260911

_TEXT: dict[str, Any] = {
    "vocab_size": 4096,
    "hidden_size": 128,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
    "head_dim": 64,
    "qk_rope_head_dim": 16,
    "q_lora_rank": 64,
    "o_lora_rank": 32,
    "o_groups": 2,
    "swiglu_limit": 10.0,
    "rms_norm_eps": 1e-20,
    "max_position_embeddings": 2048,
    "rope_theta": 10000.0,
    "compress_rope_theta": 160000.0,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 4,
        "beta_fast": 32,
        "beta_slow": 1,
        "original_max_position_embeddings": 512,
    },
    "sliding_window": 16,
    "compress_ratios": [0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 0, 0, 0],
    "kv_source_layer_ids": [2, 4, 6],
    "index_source_layer_ids": [2, 4, 6, 8, 10],
    "index_n_heads": 8,
    "index_head_dim": 32,
    "index_topk": 16,
    "candidate_source_layer_id": 6,
    "candidate_topk_blocks": 8,
    "candidate_block_size": 8,
    "moe_intermediate_size": 64,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "routed_scaling_factor": 1.5,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "hc_eps": 1e-6,
    "engram_layer_ids": [1, 4],
    "engram_num_embeddings": [1618, 1824],
    "engram_max_ngram_size": 4,
    "engram_vocab_size": 256,
    "engram_n_heads": 2,
    "engram_head_dim": 32,
    "engram_pad_token_id": 2,
    "engram_compressed_vocab_size": 4000,
    "num_nextn_predict_layers": 3,
    "dspark_block_size": 5,
    "dspark_noise_token_id": 4095,
    "dspark_target_layer_ids": [9, 10, 11],
    "dspark_markov_rank": 16,
    "dspark_n_routed_experts": 4,
    "dspark_num_experts_per_tok": 2,
}

_QUANTIZATION = {
    "quant_method": "fp8",
    "activation_scheme": "dynamic",
    "weight_block_size": [32, 32],
    "scale_fmt": "ue8m0",
    "expert_dtype": "fp4",
}

_VISION = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 2,
    "intermediate_size": 128,
    "patch_size": 14,
    "downsample_ratio": 3,
    "max_image_tokens": 64,
    "min_pixels": 42 * 42,
}


def tiny_test_config(
    *, quantised: bool = True, vision: bool = False, **text_overrides: Any
) -> ModelConfig:
    """Give the small configuration.

    Args:
        quantised: declare FP8 dense weights and FP4 experts; otherwise all tensors are plain.
        vision: with the two-layer vision tower.
        text_overrides: values for keys of ``text_config``, e.g. ``swiglu_limit=0.5``.

    Raises:
        ConfigError: the overrides do not fit.
    """
    data: dict[str, Any] = {"text_config": {**_TEXT, **text_overrides}}
    if quantised:
        data["quantization_config"] = _QUANTIZATION
    if vision:
        data |= {"vision_config": _VISION, "image_token_id": 4090}
    return ModelConfig.from_dict(data)


def golden_tokens(count: int = 96) -> list[int]:
    """The prompt that the known outputs belong to: 3 + (31 t^2 + 17 t) mod 3990."""
    return [3 + (31 * t * t + 17 * t) % 3990 for t in range(count)]


def golden_weights(config: ModelConfig) -> dict[str, torch.Tensor]:
    """Draw the reference weights of the text model and the drafter.

    Args:
        config: ``tiny_test_config()``, or one that changes no shape. Other shapes give other
            weights, which are just as usable but have no known outputs.

    Returns:
        fp32 by name, without scales; experts are plain [out, in] matrices. 695 tensors.
    """
    weights = manifest_of(config).weights.values()
    text = (weight for weight in weights if not _is_visual(weight))
    return _draw(text, _TEXT_SEED, _text_value)


def golden_vision_weights(config: ModelConfig) -> dict[str, torch.Tensor]:
    """Draw the reference weights of the vision tower and aligner: fp32, 23 tensors."""
    weights = manifest_of(config).weights.values()
    return _draw((item for item in weights if item.group == "vision"), _VISION_SEED, _vision_value)


def _is_visual(weight: WeightSpec) -> bool:
    return weight.group == "vision" or weight.name.startswith("image_")


def _draw(
    weights: Any, seed: int, value: Callable[[str, np.ndarray], np.ndarray]
) -> dict[str, torch.Tensor]:
    generator = np.random.default_rng(seed)
    drawn = {}
    for weight in sorted(weights, key=lambda weight: weight.name):
        z = value(weight.name, generator.standard_normal(weight.shape))
        drawn[weight.name] = torch.from_numpy(z.astype(np.float32))
    return drawn


def _text_value(name: str, z: np.ndarray) -> np.ndarray:
    if name.endswith(("norm.weight", "engram.q_weight", "engram.k_weight")):
        return 1 + 0.1 * z
    if name.endswith("attn_sink"):
        return 0.5 * z
    if name.endswith(("gate.bias", "gate.bias_vl")):
        return 0.05 * z
    if "hc_" in name:
        if name.endswith("_base"):
            return 0.3 * z
        return 1 + 0.1 * z if name.endswith("_scale") else 0.05 * z
    if name.endswith("embed.weight"):
        return 0.5 * z
    return _by_width(z)


def _vision_value(name: str, z: np.ndarray) -> np.ndarray:
    if "norm" in name:
        return 1 + 0.1 * z
    if name.endswith("bias"):
        return 0.1 * z
    return _by_width(z)


def _by_width(z: np.ndarray) -> np.ndarray:
    return z / float(np.sqrt(z.shape[-1]))
