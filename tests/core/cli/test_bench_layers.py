"""``deepinfer bench layers``: the small scale, with the components of a CPU."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "asked for layers of true sizes, found device = cpu"),
        (("--scale", "small", "--contexts", "23"), "--contexts 23 with --rows 6"),
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
