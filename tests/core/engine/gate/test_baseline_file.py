"""The baseline in a file."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.engine.gate.baseline import Baseline
from deepinfer_core.engine.gate.baseline_file import read_baselines, write_baselines
from deepinfer_core.errors import ConfigError


def test_the_baselines_of_all_devices_come_back_as_they_were_written(
    baseline: Baseline, tmp_path: Path
) -> None:
    file = tmp_path / "gate.json"
    elsewhere = replace(baseline, history=())
    write_baselines(file, {"cpu": baseline, "acme": elsewhere})
    assert read_baselines(file) == {"cpu": baseline, "acme": elsewhere}
    assert [item.name for item in tmp_path.iterdir()] == ["gate.json"]


def test_sums_are_hex_floats_and_equal_bits_are_stored_once(
    baseline: Baseline, tmp_path: Path
) -> None:
    file = tmp_path / "gate.json"
    write_baselines(file, {"cpu": baseline})
    data = json.loads(file.read_text())
    [sample, _] = data["devices"]["cpu"]["conditions"]["cpu/semantic/cache-plain/decode"]["samples"]
    # 1.5 + 0.1 + 2.0, rounded once.
    assert float.fromhex(sample["nll_sum"]) == math.fsum((1.5, 0.1, 2.0))
    assert sample["tokens"] == 3
    assert sample["ppl"] == pytest.approx(math.exp(1.2), rel=1e-15)
    # Two samples under two arithmetics; the third condition shares.
    assert len(data["positions"]) == 4


def test_each_choice_of_components_is_stored_once(baseline: Baseline, tmp_path: Path) -> None:
    measured = baseline.measurement
    name, scores = next(iter(measured.conditions.items()))
    other = replace(scores, components={"gemm.dense": "acme.fast"})
    mixed = replace(measured, conditions={**measured.conditions, name: other})
    file = tmp_path / "gate.json"
    write_baselines(file, {"cpu": replace(baseline, measurement=mixed)})
    assert read_baselines(file)["cpu"].measurement == mixed
    kept = json.loads(file.read_text())["components"].values()
    assert list(kept) == [{"gemm.dense": "acme.fast"}, {"gemm.dense": "core.reference"}]


def drop_components(data: dict[str, Any]) -> None:
    data["components"] = {}


def drop_tolerance(data: dict[str, Any]) -> None:
    del data["devices"]["cpu"]["tolerances"]["plain"]


def change_sum(data: dict[str, Any]) -> None:
    conditions = data["devices"]["cpu"]["conditions"]
    next(iter(conditions.values()))["samples"][0]["nll_sum"] = "0x1p+0"


def cut_positions(data: dict[str, Any]) -> None:
    data["positions"] = {key: text[:4] for key, text in data["positions"].items()}


@pytest.mark.parametrize("damage", [drop_components, drop_tolerance, change_sum, cut_positions])
def test_a_damaged_file_is_refused(
    baseline: Baseline, tmp_path: Path, damage: Callable[[dict[str, Any]], None]
) -> None:
    file = tmp_path / "gate.json"
    write_baselines(file, {"cpu": baseline})
    data = json.loads(file.read_text())
    damage(data)
    file.write_text(json.dumps(data))
    with pytest.raises(ConfigError, match="is damaged"):
        read_baselines(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "schema version None"),
        ('{"schema_version": 1}', "version 1"),
    ],
    ids=["torn", "endless", "list", "version"],
)
def test_another_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "gate.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_baselines(file)


def test_a_missing_file_and_a_missing_folder_are_named(baseline: Baseline, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gate\.json cannot be read"):
        read_baselines(tmp_path / "gate.json")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_baselines(tmp_path / "none" / "gate.json", {"cpu": baseline})
