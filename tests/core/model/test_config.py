"""Is the model configuration read completely, checked strictly, and the layers derived rightly?"""

import json
import subprocess
import sys
from importlib import resources

import pytest
from deepinfer_core.errors import ConfigError
from deepinfer_core.model.config import ModelConfig
from deepinfer_core.testing.tiny import tiny_test_config


def released() -> dict:
    """The published configuration, as parsed JSON."""
    file = resources.files("deepinfer_core.model") / "data" / "deepseek_v41_flash.json"
    return json.loads(file.read_text())


def with_text(**changes) -> dict:
    data = released()
    data["text_config"].update(changes)
    return data


def without_text(key: str) -> dict:
    data = released()
    del data["text_config"][key]
    return data


def ratios(**changes: int) -> list[int]:
    """The published ratios with some layers changed, given as l3=1."""
    values = released()["text_config"]["compress_ratios"]
    for name, ratio in changes.items():
        values[int(name[1:])] = ratio
    return values


def test_the_released_configuration_is_read_and_written_without_loss():
    config = ModelConfig.from_dict(released())
    written = config.to_dict()
    assert ModelConfig.from_dict(written) == config
    for key, value in released()["text_config"].items():
        assert written["text_config"][key] == value, key


def test_reading_a_configuration_imports_no_torch():
    code = (
        "import sys, deepinfer_core.model.config as c, deepinfer_core.weights.manifest;"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_a_folder_stands_for_its_config_json(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(released()))
    assert ModelConfig.from_file(tmp_path) == ModelConfig.from_file(tmp_path / "config.json")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"config\.json.*No such file"):
        ModelConfig.from_file(tmp_path)


@pytest.mark.parametrize(
    "content", [b"{", b"", b"\xff\xfe", b"[" * 100_000, b'{"dtype": 1, "dtype": 2}', b"9" * 5000]
)
def test_a_file_that_is_no_json_is_refused(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ConfigError, match="no JSON"):
        ModelConfig.from_file(tmp_path)


@pytest.mark.parametrize("data", [[], 3, None, "text"])
def test_a_file_that_is_no_object_is_refused(tmp_path, data):
    (tmp_path / "config.json").write_text(json.dumps(data))
    with pytest.raises(ConfigError, match="asked for an object"):
        ModelConfig.from_file(tmp_path)


def test_the_boundary_is_the_first_layer_of_ratio_one():
    assert ModelConfig.from_dict(released()).boundary_layer == 20
    assert tiny_test_config().boundary_layer == 6


def test_rings_hold_the_window_and_a_step_of_verified_rows():
    config = ModelConfig.from_dict(released())
    assert (config.verified_rows, config.ring_tokens) == (6, 134)
    assert tiny_test_config().ring_tokens == 22


def test_rings_of_a_model_without_drafter_are_one_longer_than_the_window():
    config = tiny_test_config(
        num_nextn_predict_layers=0, compress_ratios=[0, 0, *[2] * 4, *[1] * 6]
    )
    assert (config.drafter_layers, config.verified_rows, config.ring_tokens) == ((), 1, 17)


def test_every_layer_borrows_from_the_nearest_earlier_source():
    layers = ModelConfig.from_dict(released()).layers
    expected = dict.fromkeys((0, 1, 40, 41, 42))
    for first, last, source in [(2, 7, 2), (8, 13, 8), (14, 19, 14), (20, 39, 20)]:
        expected |= dict.fromkeys(range(first, last + 1), source)
    assert {layer.index: layer.kv_source for layer in layers} == expected


@pytest.mark.parametrize(
    ("part", "owners"),
    [
        ("has_compressor", [2, 8, 14, 20]),
        ("has_compressor_gate", [2, 8, 14]),
        ("has_index_keys", [2, 8, 14, 20]),
        ("has_indexer", [2, 8, 14, 20, 24, 28, 32, 36]),
        ("has_engram", [1, 14]),
        ("builds_pool", [20]),
        ("uses_pool", [24, 28, 32, 36]),
        ("is_drafter", [40, 41, 42]),
    ],
)
def test_parts_belong_to_the_published_layers(part, owners):
    layers = ModelConfig.from_dict(released()).layers
    assert [layer.index for layer in layers if getattr(layer, part)] == owners


def test_the_drafter_has_its_own_prefixes_and_experts():
    layers = ModelConfig.from_dict(released()).layers
    assert [layer.prefix for layer in layers[39:]] == ["layers.39.", "mtp.0.", "mtp.1.", "mtp.2."]
    assert [layer.routed_experts for layer in layers[39:]] == [384, 128, 128, 128]
    assert [layer.experts_per_token for layer in layers[39:]] == [6, 3, 3, 3]


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("hc_shifted", True),
        ("use_fp4_sparse_kv", True),
        ("index_k_source_layer_ids", None),
        ("dspark_target_attn_input", True),
        ("dspark_confidence_temperature", 1.0),
    ],
)
def test_absent_optional_keys_have_the_published_defaults(key, default):
    assert key not in released()["text_config"]
    assert getattr(ModelConfig.from_dict(released()).text_config, key) == default


def test_absent_top_level_options_have_the_published_defaults():
    config = ModelConfig.from_dict(released())
    assert config.tokenizer_compatibility == "release"
    assert config.text_config.index_key_layers == (2, 8, 14, 20)


def test_an_absent_drafter_means_no_drafter():
    data = without_text("num_nextn_predict_layers")
    data["text_config"]["compress_ratios"] = ratios()[:40]
    assert ModelConfig.from_dict(data).drafter_layers == ()


def test_the_other_spelling_of_the_engram_pad_is_accepted():
    data = without_text("engram_pad_token_id")
    data["text_config"]["engram_pad_id"] = 7
    assert ModelConfig.from_dict(data).text_config.engram_pad_token_id == 7


def test_both_spellings_of_the_engram_pad_at_once_are_refused():
    with pytest.raises(ConfigError, match="engram_pad_token_id is given twice"):
        ModelConfig.from_dict(with_text(engram_pad_id=7))


@pytest.mark.parametrize(
    ("value", "temperatures"),
    [(0.5, (0.5,) * 5), (2, (2.0,) * 5), ([1, 2.5, 3, 4, 5], (1.0, 2.5, 3.0, 4.0, 5.0))],
)
def test_one_confidence_temperature_or_one_for_each_position(value, temperatures):
    config = ModelConfig.from_dict(with_text(dspark_confidence_temperature=value))
    assert config.text_config.confidence_temperatures == temperatures


@pytest.mark.parametrize("value", [0, -1.0, [1, 1, 1, 1], [1, 1, 1, 1, 0], []])
def test_other_confidence_temperatures_are_refused(value):
    with pytest.raises(ConfigError, match="dspark_confidence_temperature"):
        ModelConfig.from_dict(with_text(dspark_confidence_temperature=value))


def test_harmless_keys_of_checkpoint_writers_are_dropped():
    data = with_text(transformers_version="5.24.0", torch_dtype="bfloat16", auto_map={})
    data |= {"transformers_version": "5.24.0", "_name_or_path": "x"}
    assert ModelConfig.from_dict(data) == ModelConfig.from_dict(released())


def test_an_unknown_key_is_refused_with_the_nearest():
    with pytest.raises(ConfigError) as caught:
        ModelConfig.from_dict(with_text(index_top_k=512))
    assert caught.value.message == "text_config.index_top_k is unknown"
    assert caught.value.hint == "did you mean index_topk?"


@pytest.mark.parametrize("key", ["num_hash_layers", "n_group", "first_k_dense_replace"])
def test_keys_of_structures_that_do_not_exist_are_refused(key):
    with pytest.raises(ConfigError, match=f"text_config.{key} is unknown"):
        ModelConfig.from_dict(with_text(**{key: 1}))


@pytest.mark.parametrize("key", ["vocab_size", "rope_scaling", "compress_ratios", "hc_eps"])
def test_a_missing_key_is_named(key):
    with pytest.raises(ConfigError, match=f"text_config.{key} is missing"):
        ModelConfig.from_dict(without_text(key))


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("vocab_size", "many", "an integer"),
        ("vocab_size", 1.5, "an integer"),
        ("vocab_size", True, "an integer"),
        ("rms_norm_eps", "1e-20", "a number"),
        ("hc_shifted", 1, "true or false"),
        ("hidden_act", None, "a string"),
        ("kv_source_layer_ids", 2, "a list, each entry an integer"),
        ("rope_scaling", [], "an object"),
    ],
)
def test_a_value_of_the_wrong_type_names_key_and_type(key, value, allowed):
    with pytest.raises(ConfigError, match=f"text_config.{key}: asked for {allowed}, found"):
        ModelConfig.from_dict(with_text(**{key: value}))


def test_a_wrong_list_entry_names_its_place():
    with pytest.raises(ConfigError, match=r"kv_source_layer_ids\[1\]: asked for an integer"):
        ModelConfig.from_dict(with_text(kv_source_layer_ids=[2, "8"]))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "deepseek_v4"),
        ("hidden_act", "gelu"),
        ("attention_bias", True),
        ("attention_dropout", 0.1),
        ("num_key_value_heads", 8),
        ("tie_word_embeddings", True),
        ("n_shared_experts", 2),
        ("scoring_func", "sigmoid"),
        ("topk_method", "greedy"),
        ("norm_topk_prob", False),
        ("hc_shifted", False),
        ("dspark_target_attn_input", False),
        ("candidate_block_size", 4),
        ("hidden_size", 0),
        ("sliding_window", -1),
        ("o_groups", 7),
        ("qk_rope_head_dim", 63),
        ("qk_rope_head_dim", 1024),
        ("num_experts_per_tok", 385),
        ("candidate_topk_blocks", 2047),
        ("candidate_topk_blocks", 56),
        ("candidate_source_layer_id", 21),
        ("candidate_source_layer_id", 2),
        ("compress_ratios", [0] * 42),
        ("compress_ratios", ratios(l3=3)),
        ("compress_ratios", ratios(l42=1)),
        ("compress_ratios", [0, 0, *[2] * 38, 0, 0, 0]),
        ("kv_source_layer_ids", [8, 14, 20]),
        ("kv_source_layer_ids", [2, 14, 8, 20]),
        ("kv_source_layer_ids", [2, 8, 14, 20, 28]),
        ("kv_source_layer_ids", [2, 8, 14]),
        ("kv_source_layer_ids", [0, 2, 8, 14, 20]),
        ("index_source_layer_ids", [2, 14, 20, 24, 28, 32, 36]),
        ("index_source_layer_ids", [8, 14, 20, 24, 28, 32, 36]),
        ("index_source_layer_ids", [2, 8, 14, 20, 24, 28, 32, 40]),
        ("index_k_source_layer_ids", [2, 8, 14, 20, 24]),
        ("index_k_source_layer_ids", [2, 14, 20]),
        ("engram_num_embeddings", [384006168]),
        ("engram_max_ngram_size", 1),
        ("engram_head_dim", 0),
        ("engram_layer_ids", [14, 1]),
        ("engram_pad_token_id", 129280),
        ("dspark_noise_token_id", 129280),
        ("dspark_target_layer_ids", []),
        ("dspark_target_layer_ids", [38, 39, 40]),
        ("dspark_num_experts_per_tok", 129),
        ("dspark_block_size", 0),
    ],
)
def test_an_unsupported_value_names_its_key(key, value):
    with pytest.raises(ConfigError, match=f"text_config.{key}: asked for .*, found"):
        ModelConfig.from_dict(with_text(**{key: value}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("architectures", ["DeepseekV4ForCausalLM"]),
        ("architectures", ["DeepseekV41ForCausalLM", "Other"]),
        ("model_type", "deepseek_v4"),
        ("dtype", "float16"),
        ("tokenizer_compatibility", "legacy"),
        ("image_token_id", None),
    ],
)
def test_an_unsupported_top_level_value_names_its_key(key, value):
    with pytest.raises(ConfigError, match=f"^{key}: asked for .*, found"):
        ModelConfig.from_dict(released() | {key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("quant_method", "awq"),
        ("activation_scheme", "static"),
        ("weight_block_size", [128, 128]),
        ("scale_fmt", "fp32"),
        ("expert_dtype", "int4"),
    ],
)
def test_an_unsupported_quantisation_names_its_key(key, value):
    data = released()
    data["quantization_config"][key] = value
    with pytest.raises(ConfigError, match=f"quantization_config.{key}: asked for"):
        ModelConfig.from_dict(data)


@pytest.mark.parametrize("changed", [{"l22": 2}, {"l9": 1}])
def test_a_layer_whose_source_has_another_ratio_is_refused(changed):
    with pytest.raises(ConfigError, match=r"kv_source_layer_ids: asked for"):
        ModelConfig.from_dict(with_text(compress_ratios=ratios(**changed)))


def test_another_rope_type_is_refused():
    scaling = released()["text_config"]["rope_scaling"] | {"rope_type": "linear"}
    with pytest.raises(ConfigError, match=r"rope_scaling\.rope_type: asked for yarn"):
        ModelConfig.from_dict(with_text(rope_scaling=scaling))


def test_a_vision_tower_whose_head_width_cannot_be_rotated_is_refused():
    data = released()
    data["vision_config"]["num_attention_heads"] = 48
    with pytest.raises(ConfigError, match=r"vision_config\.num_attention_heads"):
        ModelConfig.from_dict(data)


def test_a_text_only_configuration_needs_no_image_token():
    data = released()
    del data["vision_config"], data["image_token_id"]
    assert ModelConfig.from_dict(data).vision_config is None


def test_more_index_sources_than_key_sources_are_allowed_where_keys_do_not_change():
    config = ModelConfig.from_dict(
        with_text(index_source_layer_ids=[2, 5, 8, 14, 20, 21, 24, 28, 32, 36])
    )
    assert [layer.index for layer in config.layers if layer.has_indexer][:3] == [2, 5, 8]
    assert config.layers[6].kv_source == 2
