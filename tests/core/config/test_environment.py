"""Is every ``DEEPINFER_*`` variable either used or refused by name?"""

import pytest
from deepinfer_core.config import load_settings
from deepinfer_core.config.environment import PREFIX, variable_name, variables
from deepinfer_core.config.loading import value_at
from deepinfer_core.config.published import ABSENT, ALIASES
from deepinfer_core.config.schema import dotted, key_paths
from deepinfer_core.errors import ConfigError


def load(**environ: str) -> object:
    return load_settings(environ={PREFIX + name: text for name, text in environ.items()})


@pytest.mark.parametrize(
    ("name", "text", "key", "value"),
    [
        ("ACCELERATOR", "nvidia", "device", "nvidia"),
        ("HF_MODEL_DIR", "/models/v41", "model.path", "/models/v41"),
        ("HF_MODEL_DIR", "7", "model.path", "7"),
        ("BATCH_INVARIANT", "1", "strict", ("batch_invariant",)),
        ("BATCH_INVARIANT", "yes", "strict", ("batch_invariant",)),
        ("BATCH_INVARIANT", "0", "strict", ()),
        ("BATCH_INVARIANT", "False", "strict", ()),
        ("BATCH_INVARIANT", "", "strict", ()),
        ("DECODE_TOKEN_BLACKLIST", "0..3,7", "engine.decode_token_blacklist", (0, 1, 2, 3, 7)),
        ("DECODE_TOKEN_BLACKLIST", "5", "engine.decode_token_blacklist", (5,)),
        ("DECODE_TOKEN_BLACKLIST", "", "engine.decode_token_blacklist", ()),
        ("NUM_STATE_SLOTS_RATIO", "1.5", "engine.state_slots_ratio", 1.5),
        ("MAX_BACKTRACKING_TOKENS", "8", "engine.max_backtracking_tokens", 8),
        ("USE_NEXTN_DECODE", "3", "speculation.max_drafts", 3),
        ("ENABLE_MTP_VARLEN", "1", "speculation.budget", "planned"),
        ("ENABLE_MTP_VARLEN", "0", "speculation.budget", "fixed"),
        ("YOCO_PREFILL_TRUNCATION_MODE", "mask", "engine.replay", "mask"),
        ("YOCO_PREFILL_KEEP_TOKENS", "150", "engine.replay_keep_tokens", 150),
        ("ZERO_OVERHEAD_SCHEDULING", "0", "engine.asynchronous", False),
        ("ENFORCE_EAGER", "1", "engine.graphs", False),
        ("ENFORCE_EAGER", "0", "engine.graphs", True),
        ("DFLASH_CONFIDENCE_HEAD_TEMPERATURE", "2", "drafter.confidence_temperatures", (2.0,)),
        ("DFLASH_CONFIDENCE_HEAD_TEMPERATURE", "1,2", "drafter.confidence_temperatures", (1, 2)),
        ("PLUGINS_AUTOLOAD", "0", "plugins.autoload", False),
        ("CPP_LOG_LEVEL", "warn", "telemetry.level", "warning"),
        ("ENGINE__MAX_NUM_SEQS", "8", "engine.max_num_seqs", 8),
        ("ENGINE__MAX_MODEL_LEN", "none", "engine.max_model_len", None),
        ("DEVICE", "acme", "device", "acme"),
        ("MODEL__NUMERICS__COMPUTE", "float32", "model.numerics.compute", "float32"),
        ("MODEL__NUMERICS__CACHE_QUANTISATION", "false",
         "model.numerics.cache_quantisation", False),
        ("STRICT", "deterministic,graph_safe", "strict", ("deterministic", "graph_safe")),
        ("PLUGINS__REQUIRE", "acme>=1", "plugins.require", ("acme>=1",)),
        ("PLUGINS__BLOCK", '["a", "b"]', "plugins.block", ("a", "b")),
        ("COMPONENTS__ATTENTION__DECODE__USE", '["a.b", "c.d"]',
         "components.attention.decode.use", ("a.b", "c.d")),
    ],
)  # fmt: skip
def test_a_variable_sets_its_key_and_is_its_origin(
    name: str, text: str, key: str, value: object
) -> None:
    loaded = load_settings(environ={PREFIX + name: text})
    assert value_at(loaded.settings, key) == value
    assert str(loaded.origins[key]) == PREFIX + name


@pytest.mark.parametrize("short", sorted(ABSENT))
def test_a_published_name_without_its_feature_is_refused_by_name(short: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(**{short: "0"})
    assert PREFIX + short in caught.value.message
    assert f"has no {ABSENT[short]}" in caught.value.message


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("ACELERATOR", "DEEPINFER_ACCELERATOR"),
        ("ENGINE__MAX_NUM_SEQ", "DEEPINFER_ENGINE__MAX_NUM_SEQS"),
        ("ENGINE_MAX_NUM_SEQS", "DEEPINFER_ENGINE__MAX_NUM_SEQS"),
        ("HF_MODELS_DIR", "DEEPINFER_HF_MODEL_DIR"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(**{name: "1"})
    assert caught.value.message == f"unknown environment variable DEEPINFER_{name}"
    assert nearest in caught.value.hint


def test_a_variable_that_resembles_nothing_is_refused_too() -> None:
    with pytest.raises(ConfigError, match="DEEPINFER_XYZZY"):
        load(XYZZY="1")


def test_two_variables_for_one_key_are_an_error_that_names_both() -> None:
    with pytest.raises(ConfigError, match="DEEPINFER_ACCELERATOR and DEEPINFER_DEVICE"):
        load(ACCELERATOR="cpu", DEVICE="cpu")


def test_other_programs_variables_are_left_alone() -> None:
    assert variables({"PATH": "x", "XDEEPINFER_A": "x", "deepinfer_a": "x"}) == {}


def test_every_key_has_a_variable_and_no_two_share_one() -> None:
    names = [variable_name(path) for path in key_paths()]
    assert len(set(names)) == len(names)
    assert not set(names) & {PREFIX + short for short in ALIASES}


def test_every_alias_leads_to_a_key_and_none_is_absent_too() -> None:
    assert all(alias.path in key_paths() for alias in ALIASES.values())
    assert not set(ALIASES) & set(ABSENT)
    assert len({dotted(alias.path) for alias in ALIASES.values()}) == len(ALIASES)


def test_the_shared_prefix_makes_no_name_look_alike() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(environ={"DEEPINFER_FOO": "1"})
    assert "did you mean" not in caught.value.hint
    with pytest.raises(ConfigError) as caught:
        load_settings(environ={"DEEPINFER_ACCELERATR": "cpu"})
    assert caught.value.hint == "did you mean DEEPINFER_ACCELERATOR?"
