"""Which keys open the server?"""

from collections.abc import Mapping
from pathlib import Path

import pytest
from deepinfer_core.config.server import ServerSettings
from deepinfer_core.config.server_keys import read_keys
from deepinfer_core.errors import ConfigError

SECRET = "sk-0123456789"


def from_file(tmp_path: Path, text: str) -> Mapping[str, str]:
    file = tmp_path / "keys"
    file.write_text(text)
    return read_keys(ServerSettings(keys_file=str(file)), {})


def test_nobody_named_a_place_and_there_are_no_keys() -> None:
    assert read_keys(ServerSettings(), {"KEYS": f"a:{SECRET}"}) == {}


def test_a_file_has_a_key_a_line_and_comments(tmp_path: Path) -> None:
    text = f"# keys\n\nalice:{SECRET}\n  bob:schlüssel:x\n"
    assert from_file(tmp_path, text) == {"alice": SECRET, "bob": "schlüssel:x"}


def test_an_environment_variable_has_them_with_blanks_between() -> None:
    settings = ServerSettings(key_environment="KEYS")
    found = read_keys(settings, {"KEYS": f"alice:{SECRET} bob:{SECRET}2"})
    assert found == {"alice": SECRET, "bob": f"{SECRET}2"}


def test_both_places_count(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"alice:{SECRET}")
    settings = ServerSettings(keys_file=str(file), key_environment="KEYS")
    assert list(read_keys(settings, {"KEYS": "bob:abcdefgh"})) == ["alice", "bob"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# nothing", "has no keys"),
        (SECRET, "line 1 of .* is not of the form label:key"),
        (f"\na b:{SECRET}", "line 2 of .* is not of the form label:key"),
        (f"ä:{SECRET}", "is not of the form label:key"),
        ("alice:1234567", "the key of alice in .* has 7 characters"),
        (f"alice:{SECRET}\nalice:{SECRET}2", "a second key for alice"),
        (f"alice:{SECRET}\nbob:{SECRET}", "gives bob the key of another label"),
    ],
)
def test_what_cannot_be_meant_is_refused_without_telling_a_key(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        from_file(tmp_path, text)
    assert SECRET not in str(caught.value)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_keys(ServerSettings(keys_file=str(tmp_path / "x")), {})
    (tmp_path / "y").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        read_keys(ServerSettings(keys_file=str(tmp_path / "y")), {})


def test_a_variable_that_is_not_set_is_refused() -> None:
    with pytest.raises(ConfigError, match="KEYS is not set"):
        read_keys(ServerSettings(key_environment="KEYS"), {})
