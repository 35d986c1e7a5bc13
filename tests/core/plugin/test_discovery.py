"""Is every installed plugin seen, by its metadata alone?"""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from deepinfer_core.errors import ConfigError
from deepinfer_core.plugin.discovery import (
    Installed,
    LoadPolicy,
    check_names,
    installed_plugins,
    installed_versions,
    refusal,
)
from deepinfer_core.plugin.requirements import parse_requirement

Install = Callable[..., Path]
ACME = Installed("acme", "acme-dist", "1.0", "acme.plugin")
CORE = Installed("core", "deepinfer-core", "0.1.0", "deepinfer_core.builtin")


def found(distribution: str) -> list[Installed]:
    return [item for item in installed_plugins() if item.distribution == distribution]


def test_the_core_is_found_like_everybody_else() -> None:
    assert [item.value for item in found("deepinfer-core")] == ["deepinfer_core.builtin"]


def test_a_plugin_is_found_without_importing_it(install: Install) -> None:
    install("acme", "raise RuntimeError", version="2.5")
    assert found("acme-dist") == [Installed("acme", "acme-dist", "2.5", "acme_module")]
    assert "acme_module" not in sys.modules


def test_a_plugin_for_another_api_is_seen_with_its_number(install: Install) -> None:
    install("acme", None, group="deepinfer.plugins.v2")
    [plugin] = found("acme-dist")
    assert plugin.api == 2
    assert refusal(plugin, LoadPolicy()) == ("api-mismatch", "speaks v2, this core speaks v1")


def test_a_distribution_that_speaks_both_apis_is_listed_for_ours(install: Install) -> None:
    folder = install("acme", None, group="deepinfer.plugins.v2")
    [info] = folder.glob("*.dist-info")
    (info / "entry_points.txt").write_text(
        "[deepinfer.plugins.v1]\na = one\n[deepinfer.plugins.v2]\na = two\n"
    )
    assert [item.value for item in found("acme-dist")] == ["one"]


def test_of_two_copies_the_first_on_the_path_counts(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("acme", None, version="1.0")
    install("acme", None, version="2.0", into=tmp_path / "earlier")
    monkeypatch.syspath_prepend(str(tmp_path / "earlier"))
    assert [item.version for item in found("acme-dist")] == ["2.0"]
    assert installed_versions()["acme-dist"] == "2.0"


def test_a_distribution_without_a_metadata_file_is_seen_with_the_reason(install: Install) -> None:
    folder = install("acme", None)
    [info] = folder.glob("*.dist-info")
    (info / "METADATA").unlink()
    [plugin] = [item for item in installed_plugins() if item.value == "acme_module"]
    assert plugin.problem.startswith("its metadata cannot be read: ")
    assert plugin.details.startswith("Traceback")


@pytest.mark.parametrize(
    "text",
    [
        b"\xff\xfe[deepinfer.plugins.v1]\nacme = acme_module\n",
        "[deepinfer.plugins.v1]\nacme = acme_module\n".encode("utf-16"),
        b"[deepinfer.plugins.v1]\nacme acme_module\n",
    ],
)
def test_damaged_entry_points_are_seen_with_the_reason_and_hide_nobody_else(
    install: Install, text: bytes
) -> None:
    folder = install("acme", None)
    [info] = folder.glob("*.dist-info")
    (info / "entry_points.txt").write_bytes(text)
    install("other", None)
    [plugin] = found("acme-dist")
    assert (plugin.name, plugin.version) == ("acme-dist", "1.0")
    assert plugin.problem.startswith("its entry points cannot be read: ")
    assert plugin.details.startswith("Traceback")
    assert [item.problem for item in (*found("other-dist"), *found("deepinfer-core"))] == ["", ""]


def test_damaged_entry_points_of_a_bystander_are_none_of_our_business(install: Install) -> None:
    folder = install("acme", None, group="console_scripts")
    [info] = folder.glob("*.dist-info")
    (info / "entry_points.txt").write_bytes(b"\xff[console_scripts]\nacme = acme_module\n")
    assert not found("acme-dist")


def test_a_folder_of_that_name_in_the_working_directory_is_no_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deepinfer_elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not found("deepinfer-elsewhere")


@pytest.mark.parametrize("name", ["acme", "acme-dist", "Acme_Dist"])
def test_a_plugin_is_blocked_by_either_of_its_names(name: str) -> None:
    assert refusal(ACME, LoadPolicy(block=(name,))) == ("blocked", "plugins.block names it")


def test_without_autoload_only_required_plugins_and_the_core_are_loaded() -> None:
    other = Installed("other", "other-dist", "1.0", "other.plugin")
    policy = LoadPolicy(autoload=False, require=(parse_requirement("acme-dist>=1"),))
    refused = refusal(other, policy)
    assert refused is not None
    assert refused[0] == "blocked"
    assert refusal(ACME, policy) is None
    assert refusal(CORE, policy) is None


def test_the_core_cannot_be_blocked() -> None:
    with pytest.raises(ConfigError, match="the core itself"):
        check_names([CORE], LoadPolicy(block=("core",)))


def test_blocking_what_is_not_installed_is_an_error_that_lists_what_is() -> None:
    with pytest.raises(ConfigError) as caught:
        check_names([CORE, ACME], LoadPolicy(block=("acne",)))
    assert caught.value.hint == "plugins here: acme"
