"""Where are compiled kernels kept, when somebody says so and when nobody does?"""

from pathlib import Path

import pytest
from deepinfer_core.config.kernel_cache import kernel_cache_folder, require_writable
from deepinfer_core.errors import ConfigError


def test_a_folder_that_is_named_is_taken() -> None:
    assert kernel_cache_folder("/a/b", {"XDG_CACHE_HOME": "/x"}) == "/a/b"


def test_a_named_folder_may_begin_with_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/of")
    assert kernel_cache_folder("~/b") == "/home/of/b"


def test_the_home_of_an_unknown_user_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"kernels\.cache_dir is ~nobody-of-that-name"):
        kernel_cache_folder("~nobody-of-that-name/b")


def test_otherwise_it_lies_in_the_cache_folder_of_the_user() -> None:
    assert kernel_cache_folder(None, {"XDG_CACHE_HOME": "/x"}) == "/x/deepinfer/kernels"


@pytest.mark.parametrize("named", [{}, {"XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": "x"}])
def test_without_an_absolute_cache_folder_it_lies_below_the_home(
    named: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/of")
    assert kernel_cache_folder(None, named) == "/home/of/.cache/deepinfer/kernels"


def test_a_user_without_a_home_has_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", homeless)
    assert kernel_cache_folder(None, {}) == ""


def test_a_folder_that_can_be_written_is_made_and_left_empty(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    require_writable(str(folder))
    require_writable(str(folder))
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("below", ["", "/more"])
def test_a_file_is_no_folder_to_keep_kernels_in(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="found a file where a folder must be") as raised:
        require_writable(f"{tmp_path}/file{below}")
    assert f"kernels.cache_dir = {tmp_path}/file{below}" in raised.value.message
    assert "--set kernels.cache_dir=FOLDER" in raised.value.hint


def test_a_folder_that_cannot_be_made_is_refused() -> None:
    """The kernel makes all folders of /proc itself."""
    with pytest.raises(ConfigError, match="found No such file or directory"):
        require_writable("/proc/nope")


def test_a_folder_that_takes_no_files_is_refused() -> None:
    """It is there, so only writing shows that nothing can be kept."""
    with pytest.raises(ConfigError, match=r"kernels\.cache_dir = /proc, found "):
        require_writable("/proc")
