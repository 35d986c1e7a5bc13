"""Are values refused that would fail, hang or give NaN only when the model is built or run?"""

from typing import Any

import pytest
from deepinfer_core.errors import ConfigError
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.testing.tiny import tiny_test_config

NAN, INFINITY = float("nan"), float("inf")


def changed(key: str, value: object) -> dict[str, Any]:
    """The small test configuration with one dotted key set."""
    data = tiny_test_config().to_dict()
    *tables, name = key.split(".")
    table = data
    for part in tables:
        table = table[part]
    table[name] = value
    return data


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("text_config.rms_norm_eps", value) for value in (NAN, INFINITY, -1e-6, 1.0, 10**400)),
        *(("text_config.hc_eps", value) for value in (NAN, INFINITY, -1e-6, 1.0)),
        *(("text_config.rope_theta", value) for value in (INFINITY, 1.0, 0.5)),
        *(("text_config.compress_rope_theta", value) for value in (INFINITY, 1.0)),
        ("text_config.swiglu_limit", 1e308),
        ("text_config.routed_scaling_factor", INFINITY),
        *(("text_config.rope_scaling.factor", value) for value in (NAN, 0, -4)),
        *(("text_config.rope_scaling.beta_fast", value) for value in (1, 0, NAN, INFINITY)),
        *(("text_config.rope_scaling.beta_slow", value) for value in (0, -1, NAN)),
        *(
            ("text_config.rope_scaling.original_max_position_embeddings", value)
            for value in (0, -1)
        ),
        *(("text_config.n_routed_experts", value) for value in (2**20 // 12 + 1, 2**40)),
        *(("text_config.dspark_n_routed_experts", value) for value in (2**20 // 3 + 1, 2**40)),
        *(("text_config.dspark_block_size", value) for value in (1025, 2**40)),
        *(("text_config.hc_mult", value) for value in (1025, 2**40)),
        ("text_config.hc_sinkhorn_iters", 1025),
        ("text_config.engram_n_heads", 1025),
        ("text_config.engram_max_ngram_size", 1025),
        *(("text_config.hidden_size", value) for value in (127, 129)),
        *(("text_config.moe_intermediate_size", value) for value in (1, 63)),
        ("text_config.num_nextn_predict_layers", -1),
        ("text_config.vocab_size", 2**31),
        *(("eos_token_id", value) for value in (-1, 4096)),
        *(("bos_token_id", value) for value in (-1, 4096)),
        *(("pad_token_id", value) for value in (-1, 4096)),
    ],
)
def test_a_value_that_could_only_fail_later_is_refused_by_its_key(key: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        ModelConfig.from_dict(changed(key, value))
    assert caught.value.message.startswith(f"{key}: asked for ")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("text_config.rms_norm_eps", 0.0),
        ("text_config.n_routed_experts", 2**20 // 12),
        ("text_config.dspark_n_routed_experts", 2**20 // 3),
        ("text_config.dspark_block_size", 1024),
        ("text_config.moe_intermediate_size", 2),
        ("eos_token_id", 4095),
    ],
)
def test_the_last_allowed_value_is_taken(key: str, value: object) -> None:
    data = changed(key, value)
    assert ModelConfig.from_dict(data).to_dict() == data


def test_a_model_without_packed_codes_may_have_an_odd_width() -> None:
    data = changed("text_config.moe_intermediate_size", 7)
    del data["quantization_config"]
    assert ModelConfig.from_dict(data).text_config.moe_intermediate_size == 7
