"""Does a configuration file say what it means, and is a damaged one refused by name?"""

from pathlib import Path

import pytest
from deepinfer_core.config import load_settings
from deepinfer_core.errors import ConfigError


def test_toml_and_yaml_give_the_same_settings(tmp_path: Path) -> None:
    toml, yaml = tmp_path / "a.toml", tmp_path / "a.yaml"
    toml.write_text(
        'strict = ["deterministic"]\n[engine]\nseed = 3\n[components.attention.decode]\n'
        'use = ["a.b", "c.d"]\n[components.sampler]\nuse = "a.s"\noptions = { size = 3 }\n'
    )
    yaml.write_text(
        "strict: [deterministic]\nengine: {seed: 3}\ncomponents:\n  attention:\n    decode:\n"
        "      use: [a.b, c.d]\n  sampler:\n    use: a.s\n    options: {size: 3}\n"
    )
    assert load_settings(toml, environ={}).settings == load_settings(yaml, environ={}).settings


@pytest.mark.parametrize("name", ["empty.toml", "empty.yaml", "empty.yml"])
def test_an_empty_file_changes_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("")
    loaded = load_settings(tmp_path / name, environ={})
    assert loaded.settings == load_settings(environ={}).settings


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", "engine = {", "not valid TOML"),
        ("a.toml", "[engine]\nseed = 1\nseed = 2\n", "not valid TOML"),
        ("a.yaml", "engine: [", "not valid YAML"),
        ("a.yaml", "engine:\n  seed: 1\n  seed: 2\n", "key 'seed' stands twice"),
        ("a.yaml", "- engine", "holds a list"),
        ("a.yaml", "!!python/object/apply:os.abort []", "not valid YAML"),
        ("a.toml", "a = " + "[" * 5000, "not valid TOML"),
        ("a.toml", "threads = " + "9" * 5000, "not valid TOML"),
        ("a.yaml", "[" * 5000, "not valid YAML"),
        ("a.yaml", "threads: " + "9" * 5000, "not valid YAML"),
        ("a.yaml", "model: &m {path: *m}", "alias *m: write the value out"),
        ("a.json", "{}", "'.json'"),
        ("settings", "", "of no kind"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_name(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings(tmp_path / name, environ={})
    assert message in caught.value.message
    assert str(tmp_path / name) in caught.value.message
    assert "\n" not in caught.value.message


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml cannot be read: No such file"):
        load_settings(tmp_path / "absent.toml", environ={})


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_settings(tmp_path / "a.toml", environ={})


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(tmp_path, environ={})


def test_a_message_names_the_file_and_the_key(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[engine]\nseed = -1\n")
    with pytest.raises(ConfigError, match=r"from .*a\.toml:engine\.seed"):
        load_settings(tmp_path / "a.toml", environ={})


def test_a_bare_off_in_yaml_is_the_word_off(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("engine: {replay: off}\ntelemetry: {level: off}\n")
    loaded = load_settings(tmp_path / "a.yaml", environ={})
    assert loaded.settings.engine.replay == "off"
    assert loaded.settings.telemetry.level == "off"
