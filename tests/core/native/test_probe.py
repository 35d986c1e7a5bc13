"""Does `auto` take the compiled kernels where they run, and say why where they do not?"""

from pathlib import Path

import pytest
from deepinfer_core.config import load_settings, resolve_components
from deepinfer_core.plugin.resolution import Resolution

SLOT = "gemm.dense"


def resolution(*overrides: str) -> Resolution:
    return resolve_components(
        load_settings(None, ("plugins.autoload=false", *overrides), environ={})
    )


def candidate(found: Resolution, name: str) -> tuple[str, str, str]:
    [slot] = [slot for slot in found.report.slots if slot.wish.title == SLOT]
    [row] = [row for row in slot.rows if row.candidate.spec.name == name]
    return row.state, row.reason, row.candidate.fix


@pytest.mark.usefixtures("kernels")
def test_auto_takes_the_kernels_where_they_run(tmp_path: Path) -> None:
    found = resolution(f"kernels.cache_dir={tmp_path / 'cache'}")
    assert candidate(found, "core.cpu")[:2] == ("picked", "compiled kernels")
    assert candidate(found, "core.reference")[0] == "outranked"


def test_without_a_compiler_auto_takes_the_reference_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = resolution(f"kernels.cache_dir={tmp_path / 'cache'}")
    state, reason, fix = candidate(found, "core.cpu")
    assert (state, "found none of cc, gcc, clang" in reason) == ("unusable", True)
    assert "install a C compiler" in fix
    assert found.report.picked()[SLOT] == "core.reference"


def test_without_a_compiler_one_warning_for_all_slots_names_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    [warning] = resolution(f"kernels.cache_dir={tmp_path / 'cache'}").report.warnings
    assert warning.startswith("core.cpu is not usable: asked for a C compiler, found none of")
    assert warning.endswith("; core.reference runs, slower (deepinfer plugins --why core.cpu)")


@pytest.mark.usefixtures("kernels")
def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    [warning] = resolution(f"kernels.cache_dir={tmp_path / 'file'}").report.warnings
    assert "cannot be written" in warning


def test_whoever_asks_for_the_reference_is_not_warned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    kinds = ("attention", "gemm", "transform", "sampler")
    wishes = [f"components.{kind}.use=core.reference" for kind in kinds]
    assert resolution(*wishes).report.warnings == ()


def test_named_kernels_that_cannot_be_compiled_are_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = resolution(f"kernels.cache_dir={tmp_path / 'cache'}", "components.gemm.use=core.cpu")
    assert found.resolved is None
    assert "found none of cc, gcc, clang" in found.report.problems[0].message


@pytest.mark.usefixtures("kernels")
def test_a_model_in_float64_gets_the_reference(tmp_path: Path) -> None:
    found = resolution(f"kernels.cache_dir={tmp_path / 'cache'}", "model.numerics.compute=float64")
    state, reason, _ = candidate(found, "core.cpu")
    assert (state, "float64" in reason) == ("unusable", True)
    assert found.report.picked()[SLOT] == "core.reference"
    assert found.report.warnings == ()


def test_another_device_is_not_probed(tmp_path: Path) -> None:
    found = resolution(f"kernels.cache_dir={tmp_path / 'cache'}", "device=nvidia")
    assert candidate(found, "core.cpu")[0] == "unusable"
    assert not (tmp_path / "cache").exists()
