"""Is the table of the fastest tunings written where the user says, and nowhere else?"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deepinfer_core.cli import bench_kernels, main, tune_kernels
from deepinfer_core.interfaces.operators.tunings import TunedKernel
from deepinfer_core.reference.device import CpuDevice
from deepinfer_core.testing.kernel_cases import tuned

from tests.core.bench.fake_tunings import FakeKernels, FakeTunings, catalogue, kernel, load

Run = Callable[..., int]
NOW, OTHER = kernel("now"), kernel("other")


@pytest.fixture(autouse=True)
def backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that is installed: the core alone has none."""
    whole = catalogue(FakeKernels(), FakeTunings(NOW, OTHER))
    monkeypatch.setattr(bench_kernels, "_catalogues", lambda _: {"backend": whole})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--tune"], "found no --out for the table"),
        (["--shapes", "x8"], "found no --tune"),
        (["--times", "x.json"], "found no --tune"),
        (["--tune", "--evidence", "--out", "x.json"], "--tune and --evidence"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "kernels", *options]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("device", "words"),
    [("cpu", "the device cpu has no tile kernels"), ("nvidia", "on device 'nvidia'")],
)
def test_without_a_device_nothing_is_tuned(
    device: str, words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "table.json"
    command = ["bench", "kernels", "--tune", "--out", str(out), "--set", f"device={device}"]
    assert main(command) != 0
    assert words in capsys.readouterr().err
    assert not out.exists()


@dataclass
class Tuned:
    """Runs of the verb on a kernel of the test."""

    folder: Path
    candidates: tuple[TunedKernel, ...] = (NOW, OTHER)
    kernels: FakeKernels = field(default_factory=FakeKernels)

    @property
    def table(self) -> Path:
        return self.folder / "table.json"

    def __call__(self, *options: str) -> int:
        return main(["bench", "kernels", "--tune", "--out", str(self.table), *options])


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tuned:
    """On a CPU, with two sizes of one spec."""
    made = Tuned(tmp_path)
    resolved = SimpleNamespace(context=SimpleNamespace(cache_dir=""))

    def on_device(*_: Any) -> Any:
        whole = catalogue(made.kernels, FakeTunings(*made.candidates))
        return resolved, CpuDevice(), [whole]

    monkeypatch.setattr(tune_kernels, "on_device", on_device)
    sizes = [load(10, (1, 10)), load(500, (11, 0))]
    monkeypatch.setattr(tuned, "tuned_loads", lambda operator: iter([sizes]))
    return made


def test_the_table_is_written_to_the_file(run: Tuned, capsys: pytest.CaptureFixture[str]) -> None:
    """With what it was measured on, when and by which program."""
    assert run() == 0
    names, hardware, date, commit = run.table.read_text(encoding="utf-8").split("; ")
    assert set(names.split()) <= {"now", "other"}
    assert len(names.split()) == 2
    assert "core" in hardware
    assert len(date) == len("2026-01-02")
    assert commit
    shown = capsys.readouterr().out
    assert "transform_double[10 rows]" in shown
    assert "transform_double[500 rows]" in shown
    assert [path.name for path in run.folder.iterdir()] == ["table.json"]


def test_operators_are_chosen_by_a_part_of_their_name(run: Tuned) -> None:
    assert run("--operator", "double") == 0
    assert run.table.exists()


def test_a_peer_that_fails_is_told(
    run: Tuned, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(given: Any) -> None:
        raise RuntimeError("no such width")

    size = load(10, (1, 0))
    size = replace(size, case=replace(size.case, peer=("acme 1.0", fails)))
    monkeypatch.setattr(tuned, "tuned_loads", lambda operator: iter([[size]]))
    assert run() == 0
    told = "transform_double[10 rows] beside acme 1.0: RuntimeError: no such width"
    assert told in capsys.readouterr().out


def test_some_sizes_are_shown_and_not_written(
    run: Tuned, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--shapes", "500") == 0
    assert "not written" in capsys.readouterr().out
    assert not run.table.exists()


def test_every_time_is_there_as_data(run: Tuned, capsys: pytest.CaptureFixture[str]) -> None:
    times = run.folder / "times.json"
    assert run("--json", "--times", str(times)) == 0
    found = json.loads(times.read_text(encoding="utf-8"))
    assert found == json.loads(capsys.readouterr().out)
    assert [one["case"] for one in found] == [
        f"transform_double[{rows} rows]" for rows in (10, 10, 500, 500)
    ]
    assert all(one["us"] > 0 and one["peer"] == "torch.add" for one in found)
    assert [one["is_picked"] for one in found] == [True, False] * 2


def test_a_candidate_that_is_wrong_is_told_and_fails_the_run(
    run: Tuned, capsys: pytest.CaptureFixture[str]
) -> None:
    run.candidates = (NOW, kernel("wrong", factor=3.0))
    assert run() == 1
    assert "out_T" in capsys.readouterr().out
    assert run.table.read_text(encoding="utf-8").startswith("now now;")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--operator", "transform_halve"], "there is transform_double"),
        (["--shapes", "7 rows"], "names are like 10 rows"),
    ],
)
def test_what_there_is_not_is_named(
    run: Tuned, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*options) == 2
    assert words in capsys.readouterr().err
