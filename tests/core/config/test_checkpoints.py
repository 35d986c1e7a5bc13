"""Which checkpoint is loaded when nobody names one?"""

from collections.abc import Callable
from pathlib import Path

import pytest
from deepinfer_core.config import checkpoint_folder, checkpoints, load_settings
from deepinfer_core.errors import ConfigError, PluginFailed
from importlib_metadata import EntryPoint

Ship = Callable[..., None]


@pytest.fixture
def ship(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ship:
    """Install these checkpoints and no others."""
    (tmp_path / "acme_checkpoint.py").write_text(
        "def folder():\n    return '/models/tiny'\ndef broken():\n    raise KeyError('gone')\n"
        "def nothing():\n    return None\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    def put(**values: str) -> None:
        found = [
            EntryPoint(name=name, value=f"acme_checkpoint:{value}", group="")
            for name, value in values.items()
        ]
        monkeypatch.setattr(checkpoints, "entry_points", lambda group: found * 2)

    return put


def test_damaged_entry_points_of_others_hide_no_checkpoint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, text in (
        ("broken", b"\xff[deepinfer.checkpoints.v1]\nbroken = broken:folder\n"),
        ("whole", b"[deepinfer.checkpoints.v1]\nwhole = whole:folder\n"),
    ):
        info = tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (info / "entry_points.txt").write_bytes(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    names = {item.name for item in checkpoints.shipped_checkpoints()}
    assert "whole" in names
    assert "broken" not in names


def test_a_path_is_taken_as_it_is(ship: Ship) -> None:
    ship(tiny="broken")
    assert checkpoint_folder("/a/b") == Path("/a/b")


def test_a_home_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="no such user or home"):
        checkpoint_folder("~no_such_user_of_ours/v41")


def test_the_home_folder_may_be_abbreviated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert checkpoint_folder("~/v41") == Path("/home/me/v41")


def test_the_only_shipped_checkpoint_is_the_default(ship: Ship) -> None:
    ship(tiny="folder")
    assert checkpoint_folder(None) == Path("/models/tiny")


def test_without_any_the_message_says_what_to_install(ship: Ship) -> None:
    ship()
    with pytest.raises(ConfigError) as caught:
        checkpoint_folder(None)
    assert "deepinfer-tiny" in caught.value.hint


def test_of_several_none_is_guessed(ship: Ship) -> None:
    ship(two="folder", one="folder")
    with pytest.raises(ConfigError, match="one, two"):
        checkpoint_folder(None)


@pytest.mark.parametrize("name", ["broken", "nothing", "absent"])
def test_a_shipped_checkpoint_that_breaks_is_an_error_by_name(ship: Ship, name: str) -> None:
    ship(tiny=name)
    with pytest.raises(PluginFailed, match="shipped checkpoint 'tiny'"):
        checkpoint_folder(None)


def test_a_model_is_called_like_its_folder_or_the_distribution_that_ships_it(
    ship: Ship, tmp_path: Path
) -> None:
    assert checkpoints.checkpoint_name(str(tmp_path), tmp_path) == tmp_path.name
    ship(tiny="folder")
    assert checkpoints.checkpoint_name(None, Path("/models/tiny/checkpoint")) == "tiny"


def test_a_model_is_served_under_the_names_of_the_settings_or_its_own(tmp_path: Path) -> None:
    own = {"model.path": str(tmp_path)}
    assert checkpoints.served_names(load_settings(environ={}, api=own).settings) == (tmp_path.name,)
    named = load_settings(environ={}, api={**own, "server.model_names": ["a", "b"]}).settings
    assert checkpoints.served_names(named) == ("a", "b")
