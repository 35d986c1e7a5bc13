"""``deepinfer bench layers``: the small scale, with the components of a CPU."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.bench.layers.idle import Activity, Trace
from deepinfer_core.cli import main
from deepinfer_core.interfaces.device import Device

Run = Callable[..., subprocess.CompletedProcess[str]]
FIELDS = {"name", "value", "unit", "bound", "ratio", "hardware", "date", "commit"}
ONE = ("--scale", "small", "--prompts", "16", "--sequences", "2", "--contexts", "40")


@pytest.mark.parametrize("components", ["core.cpu", "core.reference"])
def test_every_load_has_a_measured_and_an_extrapolated_figure(
    deepinfer: Run, components: str, tmp_path: Path
) -> None:
    kinds = ("attention", "gemm", "transform", "sampler")
    use = [text for kind in kinds for text in ("--set", f"components.{kind}.use={components}")]
    target = tmp_path / "figures.json"
    done = deepinfer("bench", "layers", *ONE, "--json", "--out", str(target), *use)
    assert (done.returncode, done.stderr) == (0, "")
    found: list[dict[str, Any]] = json.loads(done.stdout)
    assert json.loads(target.read_text(encoding="utf-8")) == found
    assert all(set(one) == FIELDS and one["unit"] == "ms" for one in found)
    names = [one["name"] for one in found]
    loads = ("tokens=16,chunk=16", "sequences=2,context=40,rows=1", "sequences=2,context=40,rows=6")
    verbs = ("prompt", "decode", "decode")
    for number, (load, verb) in enumerate(zip(loads, verbs, strict=True)):
        measured, whole = names[2 * number : 2 * number + 2]
        assert measured.startswith(f"layers.{verb}[{load},layers=12,steps=launched,")
        assert whole.startswith(f"layers.{verb}.extrapolated[{load},layers=12,steps=launched,")
        assert components in measured


def test_fewer_layers_are_extrapolated_by_their_bound(deepinfer: Run) -> None:
    done = deepinfer("bench", "layers", *ONE, "--rows", "1", "--layers", "9", "--json")
    found = json.loads(done.stdout)
    assert "layers=9," in found[0]["name"]
    assert "layers=12," in found[1]["name"]
    assert found[1]["bound"]["value"] > found[0]["bound"]["value"]
    assert found[1]["ratio"] == pytest.approx(found[0]["ratio"], rel=1e-4)


def test_the_table_says_what_was_built_and_what_is_extrapolated(deepinfer: Run) -> None:
    done = deepinfer("bench", "layers", *ONE, "--rows", "1", "--layers", "9")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("layers    9 of 12: 0 1 2 ")
    assert [line.split()[0] for line in lines[1:6]] == [
        "computed", "hardware", "program", "rates", "weights",
    ]  # fmt: skip
    assert sum("extrapolated" in line for line in lines) == 2


def test_the_table_calls_nothing_extrapolated_where_all_layers_were_built(deepinfer: Run) -> None:
    done = deepinfer("bench", "layers", *ONE, "--rows", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("layers    12 of 12: ")
    assert "extrapolated" not in done.stdout


def test_the_profile_is_of_as_many_requests_as_are_wanted_and_tells_microseconds_a_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts: list[int] = []

    def recorded(device: Device, work: Callable[[], list[list[object]]]) -> Trace:
        texts.extend(len(deltas) for deltas in work())
        names = ("Memcpy DtoH", "kernel", "kernel", "Memcpy DtoH", "kernel", "Memcpy DtoH")
        starts_us = (0, 12, 22, 32, 46, 60)
        return Trace(
            activities=tuple(
                Activity(name=name, start_us=start_us, end_us=start_us + 10)
                for name, start_us in zip(names, starts_us, strict=True)
            )
        )

    monkeypatch.setattr("deepinfer_core.bench.layers.survey.traced", recorded)
    sizes = ("--prompts", "16", "--sequences", "2,3", "--contexts", "40", "--rows", "1")
    assert main(["bench", "layers", "--scale", "small", *sizes, "--profile", "2"]) == 0
    assert set(texts) == {2}
    *_, words, _, head, first, second = capsys.readouterr().out.splitlines()
    assert words == (
        "engine    2 requests, 30.0 us a step: 3.0 us or 10.00% between two steps,"
        " 5.0 us or 16.67% with nothing on the device"
    )
    assert head.split() == ["share", "us", "a", "step", "calls", "a", "step", "activity"]
    assert first.split() == ["0.600", "15.0", "2", "kernel"]
    assert second.split() == ["0.400", "10.0", "1", "Memcpy", "DtoH"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "asked for layers of true sizes, found device = cpu"),
        (("--scale", "small", "--contexts", "23"), "--contexts 23 with --rows 6"),
        (
            ("--scale", "small", "--sequences", "2,3", "--profile", "1"),
            "asked for a profile of 1 sequences, found no decode steps of so many",
        ),
        (("--scale", "small", "--profile", "0"), "'0': a number from 1 on is wanted"),
        (("--scale", "small", "--layers", "3"), "asked for 3 of 12 layers"),
        (("--scale", "small", "--sequences", "0"), "numbers from 1 on are wanted"),
        (("--scale", "small", "--prompts", "a"), "'a': numbers from 1 on are wanted"),
        (("--scale", "small", "--layers", "0"), "'0': a number from 1 on is wanted"),
        (("--scale", "small", "--layers=-1"), "'-1': a number from 1 on is wanted"),
        (("--scale", "small", "--layers", "a"), "'a': a number from 1 on is wanted"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    deepinfer: Run, options: tuple[str, ...], message: str
) -> None:
    done = deepinfer("bench", "layers", *options)
    assert done.returncode == 2
    assert message in done.stderr
