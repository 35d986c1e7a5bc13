"""Which configuration has a checkpoint of about so many bytes?

Every feature of the model is in it: 12 layers in two halves, shared keys, a candidate pool, two
Engram tables and a drafter of three layers, with the window of the real model. As in the real
model, Engram tables take two fifths of the bytes and experts most of the others: width and the
number of experts grow with the size. The vocabulary takes up what is left, so that the size is met
closely.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from deepinfer_core.errors import ConfigError
from deepinfer_core.model.config import ModelConfig, QuantizationConfig, RopeScaling, TextConfig
from deepinfer_core.model.engram_primes import hash_primes
from deepinfer_core.weights.manifest import manifest_of

__all__ = ["config_of_size"]

_WIDTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_LARGEST_BYTES = 2**43  # beyond this the table of tensors itself becomes unwieldy
_SMALLEST_VOCABULARY = 1024
_SMALLEST_TABLE = 256
_TABLES = 12  # two layers, three n-gram orders, two heads
_TABLE_ROW_BYTES = 33  # 32 values of e4m3 and their scale
_FOLDED_IDS = 96  # ids that share their compressed id with another, as real vocabularies have


def config_of_size(size_bytes: int) -> ModelConfig:
    """Find a configuration whose tensors take at most ``size_bytes``, and nearly as many.

    Raises:
        ConfigError: the smallest configuration is larger than that, or it is beyond 8 TiB.
    """
    if size_bytes > _LARGEST_BYTES:
        raise ConfigError(
            f"asked for a checkpoint of {size_bytes} bytes, found a limit of {_LARGEST_BYTES}",
            hint="ask for less, or give --config",
        )
    smallest = _bytes(_WIDTHS[0], 2, _SMALLEST_VOCABULARY, _SMALLEST_TABLE)
    if size_bytes < smallest:
        raise ConfigError(
            f"asked for a checkpoint of {size_bytes} bytes, found that the smallest model with"
            f" every feature takes {smallest}",
            hint="ask for more, or give --config",
        )
    in_tables = 2 * (size_bytes - smallest) // 5
    table = max(_SMALLEST_TABLE, in_tables // (_TABLES * _TABLE_ROW_BYTES))
    # Half of the other bytes are for further experts, so that they outweigh the rest.
    room = size_bytes - in_tables
    fitting = [width for width in _WIDTHS if 2 * _bytes(width, 8, 4096, _SMALLEST_TABLE) <= room]
    width = fitting[-1] if fitting else _WIDTHS[0]
    vocabulary = 4096 if fitting else _SMALLEST_VOCABULARY
    one_expert = _bytes(width, 3, vocabulary, table) - _bytes(width, 2, vocabulary, table)
    experts = 2 + (size_bytes - _bytes(width, 2, vocabulary, table)) // one_expert
    one_id = _bytes(width, experts, vocabulary + 1, table) - _bytes(
        width, experts, vocabulary, table
    )
    vocabulary += (size_bytes - _bytes(width, experts, vocabulary, table)) // one_id
    return _config(width, experts, vocabulary, table)


def _bytes(width: int, experts: int, vocabulary: int, table: int) -> int:
    return manifest_of(_config(width, experts, vocabulary, table)).nbytes


def _config(width: int, experts: int, vocabulary: int, table: int) -> ModelConfig:
    heads = max(2, width // 64)
    ratios = [0, 0, *[2] * 4, *[1] * 6, 0, 0, 0]
    text = TextConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=12,
        num_attention_heads=heads,
        head_dim=64,
        qk_rope_head_dim=16,
        q_lora_rank=max(64, width // 4),
        o_lora_rank=max(32, width // 8),
        o_groups=2,
        swiglu_limit=10.0,
        rms_norm_eps=1e-20,
        max_position_embeddings=8192,
        rope_theta=10000.0,
        compress_rope_theta=160000.0,
        rope_scaling=RopeScaling(
            rope_type="yarn",
            factor=4.0,
            beta_fast=32.0,
            beta_slow=1.0,
            original_max_position_embeddings=2048,
        ),
        sliding_window=128,
        compress_ratios=tuple(ratios),
        kv_source_layer_ids=(2, 4, 6),
        index_source_layer_ids=(2, 4, 6, 8, 10),
        index_n_heads=8,
        index_head_dim=32,
        index_topk=64,
        candidate_source_layer_id=6,
        candidate_topk_blocks=32,
        candidate_block_size=8,
        moe_intermediate_size=max(64, width // 2),
        n_routed_experts=experts,
        num_experts_per_tok=2,
        routed_scaling_factor=1.5,
        hc_mult=4,
        hc_sinkhorn_iters=20,
        hc_eps=1e-6,
    )
    return ModelConfig(
        text_config=replace(text, **_engram(table), **_drafter(vocabulary)),
        quantization_config=QuantizationConfig(
            quant_method="fp8",
            activation_scheme="dynamic",
            weight_block_size=(32, 32),
            scale_fmt="ue8m0",
            expert_dtype="fp4",
        ),
    )


@cache
def _engram(table: int) -> dict[str, Any]:
    layers = hash_primes(layers=2, orders=3, heads=2, smallest=table)
    return {
        "engram_layer_ids": (1, 4),
        "engram_num_embeddings": tuple(map(sum, layers)),
        "engram_max_ngram_size": 4,
        "engram_vocab_size": table,
        "engram_n_heads": 2,
        "engram_head_dim": 32,
    }


def _drafter(vocabulary: int) -> dict[str, Any]:
    return {
        "engram_compressed_vocab_size": vocabulary - _FOLDED_IDS,
        "num_nextn_predict_layers": 3,
        "dspark_block_size": 5,
        "dspark_noise_token_id": vocabulary - 1,
        "dspark_target_layer_ids": (9, 10, 11),
        "dspark_markov_rank": 16,
        "dspark_n_routed_experts": 2,
        "dspark_num_experts_per_tok": 2,
    }
