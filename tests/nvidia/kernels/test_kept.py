"""Is a kept kernel found again, and one that is torn, foreign or outdated never taken for it?"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.testing.events import captured_events
from deepinfer_nvidia.kernels import kept as kept_module
from deepinfer_nvidia.kernels.kept import KeptKernels
from deepinfer_nvidia.kernels.tuning import KernelTuning

TUNING = KernelTuning()


def build(spec: str, tuning: KernelTuning) -> Any:
    raise AssertionError("nothing is built to look for a kernel")


def other_build(spec: str, tuning: KernelTuning) -> Any:
    raise AssertionError("nothing is built to look for a kernel")


other_build.__module__ = "deepinfer_nvidia.kernels.another"


@pytest.fixture
def kept(tmp_path: Path) -> KeptKernels:
    return KeptKernels(tmp_path, "sm_90a")


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    """What the compiler leaves."""
    folder = tmp_path / "0.1.15" / "kernels" / "key"
    folder.mkdir(parents=True)
    (folder / "executable.so").write_bytes(b"machine code")
    return folder


def test_nothing_is_there_at_first(kept: KeptKernels) -> None:
    assert not kept.has(build, "spec", TUNING)
    kept.check(build, "spec", TUNING)


def test_a_kernel_that_was_noted_is_there(kept: KeptKernels, entry: Path) -> None:
    assert kept.note(build, "spec", TUNING, entry)
    assert kept.has(build, "spec", TUNING)
    with captured_events() as logs:
        kept.check(build, "spec", TUNING)
    assert (logs, entry.exists()) == ([], True)


@pytest.mark.parametrize(
    ("asked", "spec", "tuning"),
    [
        (build, "other", TUNING),
        (build, "spec", replace(TUNING, threads=64)),
        (other_build, "spec", TUNING),
    ],
)
def test_another_kernel_is_not(
    kept: KeptKernels, entry: Path, asked: Any, spec: str, tuning: KernelTuning
) -> None:
    kept.note(build, "spec", TUNING, entry)
    assert not kept.has(asked, spec, tuning)


def test_another_architecture_has_kernels_of_its_own(
    kept: KeptKernels, entry: Path, tmp_path: Path
) -> None:
    kept.note(build, "spec", TUNING, entry)
    assert not KeptKernels(tmp_path, "sm_100a").has(build, "spec", TUNING)


@pytest.mark.parametrize("library", [b"machine", b"", b"another kernel's machine code"])
def test_a_torn_or_foreign_entry_is_taken_away_and_said(
    kept: KeptKernels, entry: Path, library: bytes
) -> None:
    kept.note(build, "spec", TUNING, entry)
    (entry / "executable.so").write_bytes(library)
    assert not kept.has(build, "spec", TUNING)
    with captured_events() as logs:
        kept.check(build, "spec", TUNING)
    assert not entry.exists()
    (line,) = logs
    assert (line["event"], line["level"]) == ("kernels.entry_refused", "warning")
    assert line["operator"] == "test_kept"
    assert line["entry"] == str(entry)


def test_an_entry_that_is_gone_is_no_news(kept: KeptKernels, entry: Path) -> None:
    kept.note(build, "spec", TUNING, entry)
    (entry / "executable.so").unlink()
    entry.rmdir()
    with captured_events() as logs:
        kept.check(build, "spec", TUNING)
    assert logs == []
    assert not kept.has(build, "spec", TUNING)


def test_a_kernel_of_other_sources_is_looked_at_again(
    kept: KeptKernels, entry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.note(build, "spec", TUNING, entry)
    monkeypatch.setattr(kept_module, "_sources", lambda: "others")
    assert not kept.has(build, "spec", TUNING)
    kept.check(build, "spec", TUNING)
    assert entry.exists()  # its text may still be the same
    kept.note(build, "spec", TUNING, entry)
    assert kept.has(build, "spec", TUNING)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"library": 3}'])
def test_a_damaged_label_is_no_label(
    kept: KeptKernels, entry: Path, tmp_path: Path, text: str
) -> None:
    kept.note(build, "spec", TUNING, entry)
    (label,) = (tmp_path / "labels").iterdir()
    label.write_text(text)
    assert not kept.has(build, "spec", TUNING)
    kept.check(build, "spec", TUNING)
    assert kept.note(build, "spec", TUNING, entry)
    assert kept.has(build, "spec", TUNING)


@pytest.mark.parametrize("place", ["/kernels/key", "../kernels/key", "a/../../kernels/key", "key"])
def test_a_label_that_leads_elsewhere_is_no_label(
    kept: KeptKernels, entry: Path, tmp_path: Path, place: str
) -> None:
    """Else somebody's folder would be removed for what stands in a file."""
    kept.note(build, "spec", TUNING, entry)
    (path,) = (tmp_path / "labels").iterdir()
    label = json.loads(path.read_text())
    path.write_text(json.dumps({**label, "entry": place, "library": "another"}))
    victim = tmp_path / place
    if not place.startswith("/"):
        victim.mkdir(parents=True, exist_ok=True)
    with captured_events() as logs:
        kept.check(build, "spec", TUNING)
    assert logs == []
    assert place.startswith("/") or victim.exists()
    assert not kept.has(build, "spec", TUNING)


def test_what_was_not_kept_here_is_not_noted(kept: KeptKernels, tmp_path: Path) -> None:
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    elsewhere.mkdir()
    (elsewhere / "executable.so").touch()
    assert not kept.note(build, "spec", TUNING, elsewhere)
    assert not kept.note(build, "spec", TUNING, tmp_path / "missing")
    assert not (tmp_path / "labels").exists()


def test_the_sources_are_those_of_kernels_and_of_what_specs_are(tmp_path: Path) -> None:
    assert len(kept_module._sources()) == 64
