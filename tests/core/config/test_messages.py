"""Does a rejected value say which key, what was found, from where, and what is allowed?"""

import pytest
from deepinfer_core.config import load_settings
from deepinfer_core.errors import ConfigError


def refusal(*overrides: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_settings(None, overrides, environ={})
    return caught.value


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("engine.max_num_seqs=0", ("engine.max_num_seqs = 0", "expected 1 or more")),
        ("engine.max_num_seqs=many", ("engine.max_num_seqs = 'many'", "expected a whole number")),
        ("engine.max_num_seqs=1.5", ("engine.max_num_seqs = 1.5", "expected a whole number")),
        ("engine.state_slots_ratio=0.9", ("engine.state_slots_ratio = 0.9",)),
        (
            "engine.state_slots_ratio=16.1",
            ("engine.state_slots_ratio = 16.1", "expected 16 or less"),
        ),
        ("engine.state_slots_ratio=inf", ("engine.state_slots_ratio = inf", "finite")),
        ("engine.seed=-1", ("engine.seed = -1",)),
        (f"engine.seed={1 << 64}", ("engine.seed", "less than")),
        ("model.path=", ("model.path = ''",)),
        ("model.numerics.compute=float16", ("'float16'", "'bfloat16', 'float32' or 'float64'")),
        ("device=NVIDIA", ("device = 'NVIDIA'",)),
        ("strict=fast", ("strict = ", "'batch_invariant', 'deterministic' or 'graph_safe'")),
        ("telemetry.format=xml", ("telemetry.format = 'xml'", "'auto', 'console' or 'json'")),
        (
            "telemetry.progress=perhaps",
            ("telemetry.progress = 'perhaps'", "expected true or false"),
        ),
        ("plugins.load_timeout_s=0", ("plugins.load_timeout_s = 0",)),
        ("speculation.max_drafts=65", ("speculation.max_drafts = 65", "64")),
        ("speculation.rule=exact", ("speculation.rule = 'exact'", "'match' or 'ratio'")),
        ("components.sampler.use=[]", ("components.sampler.use = []", "at least one name")),
        ('components.sampler.use=["a.b", "a.b"]', ("named twice",)),
        ('components.sampler.use=["auto", "a.b"]', ("stands alone",)),
        ("drafter.confidence_temperatures=0", ("drafter.confidence_temperatures",)),
        ("engine.decode_token_blacklist=3..1", ("'3..1'",)),
        ("threads=0", ("threads = 0",)),
    ],
)
def test_a_value_out_of_range_is_explained(override: str, parts: tuple[str, ...]) -> None:
    message = refusal(override).message
    for part in (*parts, f"from --set {override.partition('=')[0]}"):
        assert part in message


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("engine.max_num_seq", "engine.max_num_seqs"),
        ("engin.seed", "engine"),
        ("seed", "engine.seed"),
        ("max_model_len", "engine.max_model_len"),
        ("components.atention.use", "components.attention"),
        ("components.attention.decod.use", "components.attention.decode"),
        ("model.numerics.computes", "model.numerics.compute"),
    ],
)
def test_an_unknown_key_gets_the_nearest(key: str, nearest: str) -> None:
    error = refusal(f"{key}=1")
    assert "unknown key" in error.message
    assert nearest in error.hint


def test_an_unknown_key_that_resembles_nothing_lists_its_table() -> None:
    assert (
        refusal("telemetry.xyzzy=1").hint
        == "keys here: format, level, progress, statistics_interval_s"
    )


def test_everything_that_is_wrong_is_said_at_once() -> None:
    message = refusal("engine.seed=-1", "threads=0", "nonsense=1").message
    assert all(part in message for part in ("engine.seed", "threads", "nonsense"))


def test_a_key_with_several_types_is_reported_once() -> None:
    assert refusal("components.sampler.use=3").message.count("components.sampler.use =") == 1


def test_a_long_value_is_cut() -> None:
    assert len(refusal(f"telemetry.format={'x' * 10_000}").message) < 250


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("engine.decode_token_blacklist={a=1}", "expected"),
        ("engine.kv_store.classes=[]", "expected a list of 1 or more, found 0"),
        ("engine.kv_store.fetch_patience=soon", "expected a number"),
        ("engine.kv_store.states=perhaps", "expected true or false"),
        ("engine.kv_store.fetch_bytes=0", "expected 1 or more"),
        ("engine.kv_store.match_timeout_s=0", "expected more than 0"),
    ],
)
def test_reasons_are_in_words_of_a_configuration(override: str, reason: str) -> None:
    message = refusal(override).message
    assert reason in message
    for word in ("Input", "should", "Tuple", "String", "after validation", "parse", "greater"):
        assert word not in message
