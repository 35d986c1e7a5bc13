"""``deepinfer bench``: figures of a small model, and what is refused before anything runs."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.bench import machine_rates

Run = Callable[..., subprocess.CompletedProcess[str]]
FIELDS = {"name", "value", "unit", "bound", "ratio", "hardware", "date", "commit"}
SMALL = ("--output-len", "3", "--warmup", "0", "--repeat", "2")


@pytest.fixture
def bench(deepinfer: Run, byte_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """An action on the small checkpoint, whose context is cut to 64 tokens."""
    # One trial of small matrices: rates are not what is tested here.
    monkeypatch.setattr(machine_rates, "_TRIALS", 1)
    monkeypatch.setattr(machine_rates, "_SIDE", 64)
    model = ("--model", str(byte_checkpoint), "--set", "engine.max_model_len=64")

    def run(action: str, *options: str) -> subprocess.CompletedProcess[str]:
        source = () if "--prompt-file" in options else ("--input-len", "5")
        return deepinfer("bench", action, *source, *SMALL, *model, *options)

    return run


def objects(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert (done.returncode, done.stderr) == (0, "")
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def names(found: list[dict[str, Any]]) -> list[str]:
    return [one["name"].partition("[")[0] for one in found]


def test_throughput_prints_four_rates_with_their_bounds(bench: Run) -> None:
    found = objects(bench("throughput", "--json", "--num-prompts", "3", "--batch-size", "2"))
    assert [set(one) for one in found] == [FIELDS] * 4
    assert [set(one["bound"]) for one in found] == [{"name", "value"}] * 4
    kinds = ("requests", "prompt_tokens", "output_tokens", "total_tokens")
    assert names(found) == [f"throughput.{kind}" for kind in kinds]
    assert (
        found[0]["name"].partition(",components=")[0].endswith("input=5,output=3,prompts=3,batch=2")
    )
    requests, prompt, output, total = (one["value"] for one in found)
    # 3 prompts of 5 tokens with 3 tokens each; values are stored with 6 digits.
    assert (prompt, output, total) == pytest.approx(
        (5 * requests, 3 * requests, 8 * requests), 1e-5
    )
    assert all(
        one["ratio"] == pytest.approx(one["value"] / one["bound"]["value"], 1e-5) for one in found
    )


def test_latency_prints_percentiles_of_three_durations(bench: Run) -> None:
    found = objects(bench("latency", "--json", "--batch-size", "2"))
    assert [set(one) for one in found] == [FIELDS] * 9
    kinds = ("batch", "first_token", "inter_token")
    assert names(found) == [f"latency.{kind}.p{p}" for kind in kinds for p in (50, 90, 99)]
    assert found[0]["name"].partition(",components=")[0].endswith("prompts=2,batch=2")
    by_name = dict(zip(names(found), (one["value"] for one in found), strict=True))
    assert 0 < by_name["latency.first_token.p50"] < by_name["latency.batch.p50"]


def test_the_table_shows_load_machine_and_figures(bench: Run) -> None:
    done = bench("throughput", "--num-prompts", "1")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:6]] == [
        "load", "computed", "hardware", "program", "runs", "cached",
    ]  # fmt: skip
    assert lines[5].split(maxsplit=1)[1] == "0 of 10 prompt tokens"
    assert lines[7].split()[:5] == ["figure", "value", "unit", "bound", "ratio"]
    assert lines[8].startswith("throughput.requests  ")


def test_the_picked_components_stand_in_names_and_table(bench: Run) -> None:
    kinds = ("attention", "gemm", "transform", "sampler")
    wishes = [f"components.{kind}.use=core.reference" for kind in kinds]
    options = [
        part
        for wish in (*wishes, "components.all_to_all.use=core.local")
        for part in ("--set", wish)
    ]
    once = ("--num-prompts", "1", "--repeat", "1")
    found = objects(bench("throughput", "--json", *once, *options))
    assert all(one["name"].endswith(",components=core.local+core.reference]") for one in found)
    done = bench("throughput", *once, *options)
    assert "computed  by core.local+core.reference" in done.stdout.splitlines()


def test_prompts_of_a_file_are_sent(bench: Run, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "once"}\n{"token_ids": [0, 20, 21]}\n{"prompt": "upon a"}\n')
    options = ("--prompt-file", str(file), "--output-len", "2")
    # A text has one token a byte and a first token; a warm-up is not asked for, two runs are.
    done = bench("throughput", *options)
    assert "input=prompts.jsonl,output=2,prompts=3,batch=3" in done.stdout
    assert "0 of 30 prompt tokens" in done.stdout
    done = bench("latency", *options, "--batch-size", "2")
    assert "0 of 16 prompt tokens" in done.stdout


def test_figures_are_written_to_a_file_as_well(bench: Run, tmp_path: Path) -> None:
    target = tmp_path / "figures.json"
    done = bench("latency", "--json", "--out", str(target), "--repeat", "1")
    assert json.loads(target.read_text()) == objects(done)


def test_settings_reach_the_engine(bench: Run) -> None:
    done = bench("throughput", "--num-prompts", "1", "--set", "engine.num_blocks=1")
    assert done.returncode == 2
    assert "blocks" in done.stderr


@pytest.mark.parametrize(
    ("action", "options", "message"),
    [
        ("throughput", ("--num-prompts", "0"), "--num-prompts 0"),
        ("throughput", ("--num-prompts", "-1"), "--num-prompts -1"),
        ("latency", ("--num-prompts", "1"), "unrecognized arguments: --num-prompts 1"),
        ("latency", ("--batch-size", "0"), "--batch-size 0"),
        ("latency", ("--repeat", "0"), "--repeat 0"),
        ("latency", ("--warmup", "-1"), "--warmup -1"),
        ("latency", ("--seed", "-1"), "--seed -1"),
        ("latency", ("--seed", str(1 << 64)), "--seed 18446744073709551616"),
        ("latency", ("--input-len", "0"), "--input-len is '0'"),
        ("latency", ("--input-len", "-4"), "--input-len is '-4'"),
        ("latency", ("--output-len", "9..2"), "--output-len is '9..2'"),
        ("latency", ("--input-len", "62"), "has 62 tokens and 3 are to follow"),
        ("latency", ("--input-len", "1..62"), "has 62 tokens and 3 are to follow"),
        ("latency", ("--batch-size", "600"), "engine.max_num_batched_tokens is 512"),
        ("latency", ("--set", "engine.max_model_len=99999"), "engine.max_model_len is 99999"),
        ("latency", ("--prompt-file", "nowhere.jsonl"), "nowhere.jsonl cannot be read"),
        ("latency", ("--out", "/dev/null/figures.json"), "cannot be written"),
        ("latency", ("--out", "/"), "/ is a folder"),
        ("replay", (), "invalid choice: 'replay'"),
    ],
)
def test_what_cannot_be_measured_is_refused_as_wrong_usage(
    bench: Run, action: str, options: tuple[str, ...], message: str
) -> None:
    done = bench(action, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr.splitlines()[0]


def test_the_longest_request_that_fits_is_measured(bench: Run) -> None:
    assert bench("latency", "--input-len", "61", "--repeat", "1").returncode == 0


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", (), "holds no prompt"),
        ('{"prompt": "a"}\n', ("--num-prompts", "2"), "--num-prompts is 2"),
        ('{"prompt": ""}\n', (), "the prompt is empty"),
        ('{"token_ids": [0, 99999]}\n', (), "token 1 of prompt is 99999"),
        ('{"prompt": "' + 70 * "x" + '"}\n', (), "the prompt has 71 tokens"),
        ('{"prompt": "' + 61 * "x" + '"}\n', (), "has 62 tokens and 3 are to follow"),
    ],
)
def test_prompts_of_a_file_that_cannot_be_sent_are_refused(
    bench: Run, tmp_path: Path, text: str, options: tuple[str, ...], message: str
) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(text)
    done = bench("throughput", "--prompt-file", str(file), *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr.splitlines()[0]


def test_a_batch_larger_than_the_file_is_refused(bench: Run, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a"}\n')
    done = bench("latency", "--prompt-file", str(file), "--batch-size", "2")
    assert done.returncode == 2
    assert "--batch-size is 2" in done.stderr


def test_an_unknown_model_is_named(deepinfer: Run, tmp_path: Path) -> None:
    done = deepinfer("bench", "latency", "--model", str(tmp_path / "nowhere"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "nowhere does not exist" in done.stderr


def test_a_refused_run_leaves_the_output_as_it_was(bench: Run, tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text("[]")
    for target in (old, new):
        assert bench("latency", "--input-len", "64", "--out", str(target)).returncode == 2
    assert old.read_text() == "[]"
    assert not new.exists()
