"""Where are compiled kernels kept, when somebody says so and when nobody does?"""

from pathlib import Path

import pytest
from deepinfer_core.config.kernel_cache import kernel_cache_folder
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
