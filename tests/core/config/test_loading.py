"""Which source wins, and is each value's origin known?"""

import pickle
from pathlib import Path

import pytest
from deepinfer_core.config import LoadedSettings, load_settings
from deepinfer_core.config.loading import value_at, value_text
from deepinfer_core.errors import ConfigError


def load(*overrides: str, file: Path | None = None, api: dict[str, object] | None = None,
         **environ: str) -> LoadedSettings:  # fmt: skip
    names = {f"DEEPINFER_{name}": value for name, value in environ.items()}
    return load_settings(file, overrides, environ=names, api=api)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "deepinfer.toml"
    path.write_text("[engine]\nmax_num_seqs = 2\nseed = 2\n")
    return path


def test_nothing_given_gives_defaults_whose_origin_is_default() -> None:
    loaded = load()
    assert loaded.settings.device == "cpu"
    assert loaded.settings.engine.max_backtracking_tokens == 6
    assert {str(origin) for origin in loaded.origins.values()} == {"default"}


def test_each_source_wins_over_the_one_before(file: Path) -> None:
    assert load().settings.engine.seed is None
    assert load(file=file).settings.engine.seed == 2
    assert load(file=file, ENGINE__SEED="3").settings.engine.seed == 3
    assert load("engine.seed=4", file=file, ENGINE__SEED="3").settings.engine.seed == 4
    api: dict[str, object] = {"engine.seed": 5}
    loaded = load("engine.seed=4", file=file, api=api, ENGINE__SEED="3")
    assert loaded.settings.engine.seed == 5
    assert loaded.settings.engine.max_num_seqs == 2


def test_each_origin_names_file_and_key_variable_or_argument(file: Path) -> None:
    loaded = load("threads=1", file=file, api={"strict": ["deterministic"]}, DEVICE="cpu")
    found = {key: str(origin) for key, origin in loaded.origins.items() if origin.name}
    assert found == {
        "engine.max_num_seqs": f"{file}:engine.max_num_seqs",
        "engine.seed": f"{file}:engine.seed",
        "device": "DEEPINFER_DEVICE",
        "threads": "--set threads",
        "strict": "strict=",
    }


def test_of_two_overrides_the_later_wins() -> None:
    assert load("engine.seed=1", "engine.seed=2").settings.engine.seed == 2


def test_keywords_may_be_nested_tables() -> None:
    assert load(api={"engine": {"seed": 9}}).settings.engine.seed == 9


def test_a_value_may_hold_an_equals_sign() -> None:
    assert load("model.path=a=b").settings.model.path == "a=b"


@pytest.mark.parametrize("text", ["engine.seed", "=1", "engine..seed=1", ".seed=1", ""])
def test_an_override_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not of the form path=value"):
        load(text)


def test_options_of_several_sources_are_merged_key_by_key(file: Path) -> None:
    file.write_text("[components.sampler]\nuse = 'acme.x'\noptions = { a = 1, b = 1 }\n")
    loaded = load("components.sampler.options.c=3", file=file,
                  COMPONENTS__SAMPLER__OPTIONS__B="2")  # fmt: skip
    assert loaded.settings.components.sampler.options == {"a": 1, "b": 2, "c": 3}
    assert str(loaded.origins["components.sampler.options.b"]).startswith("DEEPINFER_")
    assert value_at(loaded.settings, "components.sampler.options.c") == 3


def test_a_table_given_as_one_value_replaces_what_was_in_it_with_its_origins(file: Path) -> None:
    file.write_text("[components.sampler.options]\na = 1\n")
    loaded = load("components.sampler.options={ b = 2 }", file=file)
    assert loaded.settings.components.sampler.options == {"b": 2}
    assert "components.sampler.options.a" not in loaded.origins
    assert str(loaded.origins["components.sampler.options"]).startswith("--set")


def test_a_list_replaces_a_list_as_a_whole(file: Path) -> None:
    file.write_text('[plugins]\nblock = ["a", "b"]\n')
    assert load('plugins.block=["c"]', file=file).settings.plugins.block == ("c",)


@pytest.mark.parametrize(
    "overrides", [("engine=3", "engine.seed=2"), ("engine=3",), ("engine.seed.x=3",)]
)
def test_a_value_in_place_of_a_table_is_an_error(overrides: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="engine"):
        load(*overrides)


def test_an_empty_unknown_table_is_still_an_unknown_key(file: Path) -> None:
    file.write_text("[enigne]\n")
    with pytest.raises(ConfigError) as caught:
        load(file=file)
    assert "unknown key enigne" in caught.value.message
    assert caught.value.hint == "did you mean engine?"


def test_an_empty_known_table_changes_nothing(file: Path) -> None:
    file.write_text("[engine]\n")
    assert load("engine.seed=1", file=file).settings.engine.seed == 1


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load().settings.device = "nvidia"


def test_settings_survive_pickling_for_a_worker() -> None:
    settings = load("engine.seed=3").settings
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_a_slot_that_is_mentioned_shows_its_keys() -> None:
    assert "components.attention.decode.use" not in load().origins
    loaded = load("components.attention.decode.use=acme.x")
    assert str(loaded.origins["components.attention.decode.use"]).startswith("--set")
    assert str(loaded.origins["components.attention.decode.options"]) == "default"


@pytest.mark.parametrize(
    ("value", "text"), [(None, "none"), ("a b", "a b"), (True, "true"), ((1, 2), "[1, 2]")]
)
def test_a_value_is_shown_as_an_override_would_spell_it(value: object, text: str) -> None:
    assert value_text(value) == text


def test_keys_of_a_table_given_as_one_value_have_its_origin() -> None:
    loaded = load("engine={ seed = 7 }")
    assert str(loaded.origins["engine.seed"]) == "--set engine"
    assert str(loaded.origins["engine.max_num_seqs"]) == "default"


@pytest.mark.parametrize(
    "override",
    [
        "threads=true",
        "engine.seed=false",
        "engine.state_slots_ratio=true",
        "engine.seed=" + "9" * 5000,
        "engine.seed=" + "[" * 5000,
        "threads=1000000",
        "plugins.probe_timeout_s=1e300",
        "plugins.load_timeout_s=inf",
        "components.sampler.use=",
    ],
)
def test_a_value_that_only_python_would_take_is_refused(override: str) -> None:
    key = override.partition("=")[0]
    with pytest.raises(ConfigError, match=rf"^{key} = .* \(from --set {key}\): ") as caught:
        load(override)
    assert len(caught.value.message) < 400


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["engine.decode_token_blacklist=0..3,7", "engine.seed=18446744073709551615", "strict=[]"],
        ["components.sampler.use=acme.sampler", "components.sampler.options.depth=3"],
        ['components.gemm.dense.options={ a = "b", c = [1, 2.5], d = { e = true } }'],
        ["drafter.confidence_temperatures=1.5,2", "model.path=/a b/é", "server.port=0"],
        ['server.protocol_options.acme.talk={ depth = 3, words = ["a"] }'],
    ],
)
def test_settings_and_origins_cross_to_another_process(overrides: list[str]) -> None:
    loaded = load(*overrides)
    assert LoadedSettings.from_json(loaded.to_json()) == loaded
