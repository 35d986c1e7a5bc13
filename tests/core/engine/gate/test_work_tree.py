"""Whether a folder's checkout is clean."""

import subprocess
from pathlib import Path
from shutil import which

import pytest
from deepinfer_core.engine.gate.work_tree import clean_commit
from deepinfer_core.errors import ConfigError

pytestmark = pytest.mark.skipif(which("git") is None, reason="installing git runs these")


def git(folder: Path, *arguments: str) -> str:
    names = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *names, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def test_a_clean_checkout_has_a_commit(checkout: Path) -> None:
    assert clean_commit(checkout / "data") == git(checkout, "rev-parse", "HEAD").strip()


@pytest.mark.parametrize("name", ["data/file", "new"])
def test_changed_and_untracked_files_anywhere_in_it_are_refused(checkout: Path, name: str) -> None:
    (checkout / name).write_text("2")
    with pytest.raises(ConfigError, match=f"is dirty: .*{name}"):
        clean_commit(checkout / "data")


def test_outside_a_checkout_there_is_no_commit(tmp_path: Path) -> None:
    assert clean_commit(tmp_path) == ""


def test_a_checkout_without_commit_or_without_git_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q")
    with pytest.raises(ConfigError, match="git rev-parse failed"):
        clean_commit(tmp_path)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match="there is no git"):
        clean_commit(tmp_path)
