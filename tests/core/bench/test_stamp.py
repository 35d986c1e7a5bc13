"""Does a stamp name the machine and the program?"""

import subprocess
from pathlib import Path

import pytest
from deepinfer_core.bench.stamp import commit_of, hardware_of, stamp_of
from deepinfer_core.plugin.context import DeviceFacts

from deepinfer_core import __version__


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def tracked(tmp_path: Path) -> Path:
    file = tmp_path / "source.py"
    file.write_text("1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "source.py")
    git(tmp_path, "commit", "-q", "-m", "first")
    return file


def test_the_commit_of_a_tracked_file_is_its_checkouts(tracked: Path) -> None:
    assert commit_of(tracked) == git(tracked.parent, "rev-parse", "--short", "HEAD")


def test_a_changed_work_tree_is_marked(tracked: Path) -> None:
    tracked.write_text("2\n")
    assert commit_of(tracked).endswith("+")


def test_recorded_figures_are_no_change_of_the_program(tracked: Path) -> None:
    top = Path(git(tracked.parent, "rev-parse", "--show-toplevel"))
    results = top / "benchmarks" / "results"
    results.mkdir(parents=True)
    (results / "figures.json").write_text("[]")
    assert not commit_of(tracked).endswith("+")
    (results.parent / "script.py").write_text("")
    assert commit_of(tracked).endswith("+")


def test_a_copy_inside_a_strangers_checkout_has_the_version(tracked: Path) -> None:
    copy = tracked.parent / "installed.py"
    copy.write_text("1\n")
    assert commit_of(copy) == f"version {__version__}"


def test_without_a_checkout_or_git_there_is_the_version(
    tmp_path: Path, tracked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert commit_of(tracked) == f"version {__version__}"


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (DeviceFacts(device="cpu", model="A CPU", count=1, cores=2), "A CPU, 2 cores"),
        (DeviceFacts(device="cpu", model="A CPU", count=1, cores=1), "A CPU, 1 core"),
        (DeviceFacts(device="nvidia", model="A GPU", count=8), "8 x A GPU"),
        (DeviceFacts(device="nvidia"), "nvidia"),
    ],
)
def test_hardware_is_named_as_far_as_it_is_known(facts: DeviceFacts, expected: str) -> None:
    assert hardware_of(facts) == expected


def test_a_stamp_has_the_threads_and_a_day() -> None:
    stamp = stamp_of(DeviceFacts(device="cpu", model="A CPU", count=1, cores=2), threads=1)
    assert stamp.hardware == "A CPU, 2 cores, 1 thread"
    assert len(stamp.date) == len("2026-01-02")
