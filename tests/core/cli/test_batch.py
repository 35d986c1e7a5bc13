"""``deepinfer batch``: files, status, and going on after an interrupt."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.sampling_params import SamplingParams

Run = Callable[..., subprocess.CompletedProcess[str]]
RequestText = Callable[..., str]


def line(custom_id: str, *, url: str = "/v1/completions", **body: Any) -> str:
    body = {"prompt": custom_id, "max_tokens": 3, **body}
    found = {"custom_id": custom_id, "method": "POST", "url": url, "body": body}
    return json.dumps(found) + "\n"


def chat(custom_id: str, **body: Any) -> str:
    messages = [{"role": "user", "content": custom_id}]
    url = "/v1/chat/completions"
    return line(custom_id, url=url, prompt=None, messages=messages, **body)


def answers(path: Path) -> dict[str, dict[str, Any]]:
    shown = [json.loads(text) for text in path.read_text().splitlines()]
    found = {item["custom_id"]: item for item in shown}
    assert len(found) == len(shown)
    return found


def tokens(path: Path) -> dict[str, list[int]]:
    return {
        name: shown["response"]["body"]["choices"][0]["token_ids"]
        for name, shown in answers(path).items()
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "in.jsonl"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


@pytest.fixture
def batch(deepinfer: Run, byte_checkpoint: Path, source: Path, target: Path) -> Run:
    """Run the verb from the one file to the other with the small checkpoint."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        small = ("--set", "engine.max_model_len=256", "--model", str(byte_checkpoint))
        return deepinfer("batch", str(source), "-o", str(target), *small, *arguments)

    return run


def test_answers_are_those_of_the_python_interface(
    batch: Run, byte_checkpoint: Path, source: Path, target: Path
) -> None:
    source.write_text(line("a", seed=5) + line("b", temperature=0, max_tokens=4))
    done = batch()
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "answered: 2 requests, 2 of them now\n"
    with LLM(byte_checkpoint, max_model_len=256) as llm:
        params = [
            SamplingParams(seed=5, max_tokens=3),
            SamplingParams(temperature=0, max_tokens=4),
        ]
        first, second = llm.generate(["a", "b"], params)
    assert tokens(target) == {"a": list(first.token_ids), "b": list(second.token_ids)}
    body = answers(target)["a"]["response"]["body"]
    assert body["choices"][0]["text"] == first.text
    assert body["model"] == byte_checkpoint.name


def test_a_conversation_is_answered_like_the_python_interface_does(
    batch: Run, byte_checkpoint: Path, source: Path, target: Path
) -> None:
    pytest.importorskip("deepseek_recipe", reason="pip install deepseek-recipe==0.2.0 runs this")
    source.write_text(chat("a", seed=5))
    assert batch().returncode == 0
    with LLM(byte_checkpoint, max_model_len=256) as llm:
        done = llm.chat([{"role": "user", "content": "a"}], SamplingParams(seed=5, max_tokens=3))
    assert tokens(target) == {"a": list(done.token_ids)}


def test_a_missing_chat_library_stops_the_run_before_anything_is_answered(
    batch: Run, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deepseek_recipe", None)
    source.write_text(line("a") + chat("b"))
    done = batch()
    assert (done.returncode, target.read_text()) == (2, "")
    assert "chat needs the deepseek-recipe library" in done.stderr


def test_failures_give_status_1_and_leave_the_others_unharmed(
    batch: Run, source: Path, target: Path
) -> None:
    source.write_text(line("a") + "{\n" + line("b", foo=1) + line("c"))
    for _ in range(2):
        done = batch()
        assert done.returncode == 1
        assert done.stderr.splitlines()[0] == "error: 2 of 4 requests failed"
    found = answers(target)
    assert found["a"]["error"] is found["c"]["error"] is None
    assert "unknown field foo" in found["b"]["error"]["message"]


def test_a_finished_batch_is_not_run_again(
    batch: Run, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.write_text(line("a"))
    assert batch().returncode == 0
    whole = target.read_bytes()
    monkeypatch.setattr(LLM, "_open", None)
    assert batch().returncode == 0
    assert target.read_bytes() == whole


def test_a_custom_id_that_stands_twice_is_refused_before_the_model_is_loaded(
    batch: Run, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LLM, "_open", None)
    source.write_text(line("a") + line("a", seed=1))
    done = batch()
    assert (done.returncode, target.read_text()) == (2, "")
    assert ":2: custom_id 'a' stands in an earlier line" in done.stderr


@pytest.mark.parametrize("change", ["engine.seed=1", "engine.max_model_len=128"])
def test_answers_of_other_settings_are_not_mixed(
    batch: Run, source: Path, target: Path, change: str
) -> None:
    source.write_text(line("a"))
    assert batch().returncode == 0
    with source.open("a") as file:
        file.write(line("b"))
    whole = target.read_bytes()
    done = batch("--set", change)
    assert (done.returncode, target.read_bytes()) == (2, whole)
    assert "come from another checkpoint, version or settings" in done.stderr
    assert batch("--set", "engine.max_num_seqs=2").returncode == 0


@pytest.mark.parametrize("arguments", [("in.jsonl",), ("absent", "-o", "out"), ()])
def test_wrong_usage_has_status_2(deepinfer: Run, arguments: tuple[str, ...]) -> None:
    assert deepinfer("batch", *arguments).returncode == 2


def test_input_and_output_must_differ(batch: Run, source: Path, target: Path) -> None:
    source.write_text("")
    target.symlink_to(source)
    done = batch()
    assert done.returncode == 2
    assert "INPUT and OUTPUT are one file" in done.stderr


def test_progress_counts_what_was_answered_before(batch: Run, source: Path, target: Path) -> None:
    source.write_text(line("a"))
    batch()
    with source.open("a") as file:
        file.write(line("b"))
    done = batch("--set", "telemetry.level=debug", "--set", "telemetry.format=json")
    *lines, last = done.stderr.splitlines()
    assert last == "answered: 2 requests, 1 of them now"
    events = [json.loads(text) for text in lines]
    counts = [
        (event["done"], event["total"])
        for event in events
        if event["event"] == "phase.advanced" and event["phase"] == "batch.requests"
    ]
    assert counts == [(1, 2), (2, 2)]


def test_an_interrupt_ends_with_130_and_the_next_run_goes_on(
    batch: Run, source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.write_text("".join(line(str(i), max_tokens=1 + i) for i in range(6)))
    step = Engine.step

    def interrupted(engine: Engine) -> Any:
        if target.read_bytes().count(b"\n") >= 2:
            raise KeyboardInterrupt
        return step(engine)

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "step", interrupted)
        done = batch()
    assert (done.returncode, done.stderr) == (130, "error: interrupted\n")
    begun = tokens(target)
    assert len(begun) == 2
    assert batch().returncode == 0
    whole = tokens(target)
    assert whole | begun == whole
    target.unlink()
    assert batch().returncode == 0
    assert tokens(target) == whole


def test_ctrl_c_leaves_whole_lines_and_unlocks(
    batch: Run, byte_checkpoint: Path, source: Path, target: Path
) -> None:
    body = {"max_tokens": 40, "ignore_eos": True}
    source.write_text("".join(line(str(i), **body) for i in range(200)))
    command = [sys.executable, "-P", "-m", "deepinfer_core", "batch", str(source)]
    options = ["-o", str(target), "--model", str(byte_checkpoint)]
    environ = {name: text for name, text in os.environ.items() if "DEEPINFER_" not in name}
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, env=environ) as process:
        while process.poll() is None and not (target.exists() and target.stat().st_size):
            time.sleep(0.01)
        locked = batch()
        process.send_signal(signal.SIGINT)
        _, problems = process.communicate(timeout=60)
    assert (process.returncode, problems) == (130, b"error: interrupted\n")
    assert locked.returncode == 2
    assert "another run writes to" in locked.stderr
    assert 0 < len(tokens(target)) < 200
    assert target.read_bytes().endswith(b"\n")
