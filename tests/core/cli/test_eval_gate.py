"""``deepinfer eval ppl`` and ``refresh`` on the small checkpoint."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from deepinfer_core.engine.gate import conditions, measuring
from deepinfer_core.engine.gate.baseline import SampleScore
from deepinfer_core.engine.gate.conditions import Condition

Run = Callable[..., subprocess.CompletedProcess[str]]
FEW = (
    "/production/cache-quantised/prefill/whole",
    "/production/cache-quantised/decode",
    "/semantic/cache-plain/prefill/whole",
)


@pytest.fixture
def gate(
    deepinfer: Run, byte_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """An action with a baseline of its own; two short texts, three conditions."""
    few = tuple([one for one in conditions.conditions_of("cpu") if one.name("") in FEW])
    monkeypatch.setattr(conditions, "conditions_of", lambda device: few)
    lines = [{"source": "a", "text": "once upon"}, {"source": "b", "ids": [0, 20, 30, 40]}]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def run(action: str, *options: str) -> subprocess.CompletedProcess[str]:
        files = ("--baseline", str(tmp_path / "gate.json"), "--model", str(byte_checkpoint))
        return deepinfer("eval", action, *files, *options)

    return run


@pytest.fixture(scope="module")
def first_baseline() -> list[bytes]:
    """Room for the content of the first baseline, which all tests begin with."""
    return []


@pytest.fixture
def refreshed(gate: Run, tmp_path: Path, first_baseline: list[bytes]) -> Run:
    if not first_baseline:
        done = gate("refresh", "--reason", "first", "--texts", "texts.jsonl", "--max-tokens", "6")
        assert (done.returncode, done.stderr) == (0, "")
        first_baseline.append((tmp_path / "gate.json").read_bytes())
    (tmp_path / "gate.json").write_bytes(first_baseline[0])
    return gate


def test_a_fresh_baseline_is_met_in_every_bit(refreshed: Run) -> None:
    done = refreshed("ppl", "--json")
    shown = json.loads(done.stdout)
    assert done.returncode == 0
    assert (shown["passed"], shown["exact"], shown["differences"]) == (True, True, [])
    assert len(shown["conditions"]) == len(FEW)


def test_a_moved_likelihood_exits_with_1_and_is_located(
    refreshed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = measuring.token_likelihoods

    def moved(*arguments: object) -> tuple[SampleScore, ...]:
        first, second = true(*arguments)  # type: ignore[arg-type]
        nats = (*second.nats[:-1], second.nats[-1] + 2**-40)
        return first, SampleScore(id=second.id, nats=nats)

    monkeypatch.setattr(measuring, "token_likelihoods", moved)
    done = refreshed("ppl", "--only", "decode")
    assert done.returncode == 1
    assert "cpu/production/cache-quantised/decode, sample b/0, position 3: " in done.stdout
    assert done.stdout.count("differs") == 1


def test_a_refresh_prints_changes_and_keeps_reasons_and_selection(
    refreshed: Run, tmp_path: Path
) -> None:
    done = refreshed("refresh", "--reason", "second", "--json")
    shown = json.loads(done.stdout)
    assert shown["reason"] == "second"
    assert {row["delta"] for row in shown["samples"]} == {0.0}
    assert len(shown["samples"]) == 2 * len(FEW)
    data = json.loads((tmp_path / "gate.json").read_text())["devices"]["cpu"]
    assert [item["reason"] for item in data["history"]] == ["first", "second"]
    assert data["selection"]["max_tokens"] == 6


def test_a_refresh_refuses_paths_that_disagree_and_keeps_the_file(
    refreshed: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (tmp_path / "gate.json").read_bytes()
    true = measuring.token_likelihoods

    def moved(llm: object, samples: object, condition: object) -> tuple[SampleScore, ...]:
        scores = true(llm, samples, condition)  # type: ignore[arg-type]
        if condition.path == "prefill":  # type: ignore[attr-defined]
            return scores
        return tuple(SampleScore(id=one.id, nats=(1.0, *one.nats[1:])) for one in scores)

    monkeypatch.setattr(measuring, "token_likelihoods", moved)
    done = refreshed("refresh", "--reason", "third")
    assert done.returncode == 1
    assert "whose arithmetic is the same" in done.stderr
    assert (tmp_path / "gate.json").read_bytes() == before


def test_a_refresh_of_a_dirty_checkout_is_refused_before_anything_runs(
    gate: Run, tmp_path: Path
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    done = gate("refresh", "--reason", "first", "--texts", "texts.jsonl")
    assert done.returncode == 2
    assert "is dirty" in done.stderr
    assert not (tmp_path / "gate.json").exists()


def test_wrong_usage_says_what_is_wrong(refreshed: Run) -> None:
    assert refreshed("refresh").returncode == 2
    assert "--reason is empty" in refreshed("refresh", "--reason", " ").stderr
    done = refreshed("ppl", "--only", "nothing")
    assert done.returncode == 2
    assert "no condition's name holds 'nothing'" in done.stderr


def test_a_missing_baseline_is_wrong_usage(gate: Run) -> None:
    done = gate("ppl")
    assert done.returncode == 2
    assert "gate.json cannot be read" in done.stderr


def test_a_file_without_the_device_is_wrong_usage(refreshed: Run, tmp_path: Path) -> None:
    file = tmp_path / "gate.json"
    file.write_text(file.read_text().replace('"cpu": {', '"acme": {'))
    done = refreshed("ppl")
    assert done.returncode == 2
    assert "has no baseline of device cpu, but of acme" in done.stderr


def test_a_refresh_leaves_other_devices_alone(refreshed: Run, tmp_path: Path) -> None:
    file = tmp_path / "gate.json"
    data = json.loads(file.read_text())
    data["devices"] = {"acme": data["devices"]["cpu"]}
    file.write_text(json.dumps(data))
    assert refreshed("refresh", "--reason", "second", "--texts", "texts.jsonl").returncode == 0
    found = json.loads(file.read_text())["devices"]
    assert found["acme"] == data["devices"]["acme"]
    assert [item["reason"] for item in found["cpu"]["history"]] == ["second"]


def test_numbers_that_are_stable_and_wrong_fail_and_become_no_baseline(
    refreshed: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a device of its own, with a baseline of its own that says the same."""
    file = tmp_path / "gate.json"
    chosen = conditions.conditions_of("cpu")
    ours = tuple(
        replace(one, components="core.cpu") for one in chosen if one.numerics == "semantic"
    )
    monkeypatch.setattr(conditions, "conditions_of", lambda device: (*chosen, *ours))
    assert refreshed("refresh", "--reason", "second").returncode == 0
    assert refreshed("ppl", "--only", "core.cpu").returncode == 0
    true = measuring.token_likelihoods

    def moved(llm: object, samples: object, condition: Condition) -> tuple[SampleScore, ...]:
        scores = true(llm, samples, condition)  # type: ignore[arg-type]
        if condition.components == "core.reference":
            return scores
        return tuple(SampleScore(id=one.id, nats=(9.0, *one.nats[1:])) for one in scores)

    monkeypatch.setattr(measuring, "token_likelihoods", moved)
    before = file.read_bytes()
    done = refreshed("refresh", "--reason", "third")
    assert done.returncode == 1
    assert "against cpu/semantic/cache-plain/prefill/whole: sum " in done.stderr
    assert file.read_bytes() == before
    done = refreshed("ppl", "--only", "core.cpu")
    assert done.returncode == 1
    assert "against cpu/semantic/cache-plain/prefill/whole: sum " in done.stdout
