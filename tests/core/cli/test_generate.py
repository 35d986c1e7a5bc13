"""``deepinfer generate``: output, sources of prompts, failures and their status."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.weights.checkpoint import Checkpoint

Run = Callable[..., subprocess.CompletedProcess[str]]
GREEDY = ("--temperature", "0", "--max-tokens", "3")
USAGE = (
    *("prompt_tokens", "completion_tokens", "cached_tokens", "replayed_tokens"),
    *("stored_tokens", "peer_tokens", "has_peer_state", "drafted_tokens", "accepted_tokens"),
)


@pytest.fixture
def generate(deepinfer: Run, byte_checkpoint: Path) -> Run:
    """Run the verb with the small checkpoint."""

    def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        small = ("--set", "engine.max_model_len=256", "--model", str(byte_checkpoint))
        return deepinfer("generate", *arguments, *small, **environ)

    return run


@pytest.fixture
def expected(byte_checkpoint: Path) -> Callable[[str | list[int]], str]:
    """What the Python API says follows a prompt."""

    def text(prompt: str | list[int]) -> str:
        with LLM(byte_checkpoint, max_model_len=256) as llm:
            [done] = llm.generate([prompt], SamplingParams(temperature=0, max_tokens=3))
        return done.text

    return text


def test_standard_output_holds_the_generated_text_only(
    generate: Run, expected: Callable[[str], str]
) -> None:
    done = generate("Once", *GREEDY)
    assert (done.returncode, done.stdout, done.stderr) == (0, expected("Once") + "\n", "")


def test_a_stream_prints_the_same_text(generate: Run) -> None:
    whole = generate("Once", *GREEDY, "--no-stream").stdout
    assert generate("Once", *GREEDY, "--stream").stdout == whole


def test_json_has_exactly_the_fields_of_the_interface(generate: Run) -> None:
    done = generate("Once", *GREEDY, "--json")
    shown = json.loads(done.stdout)
    fields = ["text", "token_ids", "finish_reason", "usage", "timings_s", "seed", "sample"]
    assert list(shown) == fields
    assert tuple(shown["usage"]) == USAGE
    assert shown["usage"]["prompt_tokens"] == 5
    assert shown["usage"]["completion_tokens"] == len(shown["token_ids"]) == 3
    assert list(shown["timings_s"]) == ["load", "first_token", "total"]
    assert shown["finish_reason"] == "length"
    assert 0 < shown["timings_s"]["first_token"] <= shown["timings_s"]["total"]


def test_the_seed_in_the_output_gives_the_same_answer_again(generate: Run) -> None:
    first = json.loads(generate("Once", "--max-tokens", "8", "--json").stdout)
    again = generate("Once", "--max-tokens", "8", "--json", "--seed", str(first["seed"]))
    assert json.loads(again.stdout)["token_ids"] == first["token_ids"]


@pytest.mark.parametrize(
    ("name", "content"), [("p.txt", "Once"), ("p.jsonl", '{"prompt": "Once"}')]
)
def test_a_byte_order_mark_in_front_of_a_file_is_no_part_of_its_prompt(
    generate: Run, tmp_path: Path, name: str, content: str
) -> None:
    file = tmp_path / name
    file.write_text(content, encoding="utf-8-sig")
    shown = json.loads(generate("--prompt-file", str(file), *GREEDY, "--json").stdout)
    assert shown["usage"]["prompt_tokens"] == 1 + len("Once")


def test_a_byte_order_mark_in_front_of_standard_input_is_no_part_of_the_prompt(
    generate: Run, expected: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO("\ufeffOnce\n"))
    assert generate("-", *GREEDY).stdout == expected("Once") + "\n"


def test_a_text_file_is_one_prompt_without_its_last_line_feed(
    generate: Run, tmp_path: Path
) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("Once\nupon\n")
    shown = json.loads(generate("--prompt-file", str(file), *GREEDY, "--json").stdout)
    assert shown["usage"]["prompt_tokens"] == 1 + len("Once\nupon")


def test_a_json_lines_file_gives_one_object_a_prompt_in_order(
    generate: Run, tmp_path: Path
) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a"}\n\n{"token_ids": [0, 9, 10]}\n{"prompt": "abc\\u2028"}\n')
    done = generate("--prompt-file", str(file), *GREEDY, "--json")
    counts = [json.loads(line)["usage"]["prompt_tokens"] for line in done.stdout.splitlines()]
    assert counts == [2, 3, 7]


def test_token_ids_are_taken_as_they_are(generate: Run, expected: Callable[..., str]) -> None:
    done = generate("--token-ids", "0, 20,30", *GREEDY)
    assert done.stdout == expected([0, 20, 30]) + "\n"


def test_a_dash_reads_standard_input(
    generate: Run, expected: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO("Once\n"))
    assert generate("-", *GREEDY).stdout == expected("Once") + "\n"


def test_equal_seeds_give_equal_texts(generate: Run) -> None:
    options = ("--seed", "7", "--top-p", "0.9", "--top-k", "40", "--min-p", "0.01")
    texts = [json.loads(generate("x", *options, "--json").stdout)["token_ids"] for _ in range(2)]
    assert texts[0] == texts[1]


def test_stop_strings_end_the_text(generate: Run) -> None:
    options = ("--temperature", "0", "--max-tokens", "30", "--ignore-eos", "--json")
    whole = json.loads(generate("Once", *options).stdout)["text"]
    place = next(i for i in range(3, len(whole)) if whole[i] != "\ufffd")
    done = json.loads(generate("Once", *options, "--stop", whole[place], "--stop", "zzz").stdout)
    assert done["text"] == whole[: whole.index(whole[place])]
    assert done["finish_reason"] == "stop"


def test_a_failing_prompt_leaves_the_others_unharmed(generate: Run, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    prompts = [{"prompt": "a"}, {"prompt": ""}, {"token_ids": [999]}, {"prompt": "x" * 300}]
    file.write_text("\n".join(json.dumps(item) for item in [*prompts, {"prompt": "b"}]))
    done = generate("--prompt-file", str(file), *GREEDY, "--json")
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    reasons = [item["finish_reason"] for item in shown]
    assert reasons == ["length", "error", "error", "error", "length"]
    assert shown[1]["error"]["code"] == "request_error"
    assert shown[2]["error"]["message"] == "token 0 of prompt is 999"
    assert done.returncode == 1
    assert "error: prompt 4: the prompt has 301 tokens" in done.stderr
    assert "error" not in shown[4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no prompt was given"),
        (("a", "--token-ids", "1"), "more than one source"),
        (("",), "the prompt is empty"),
        (("--token-ids", ""), "the prompt is empty"),
        (("--token-ids", "1,x"), "--token-ids holds something that is no token id"),
        (("a", "--temperature", "nan"), "temperature is nan"),
        (("a", "--temperature", "-1"), "temperature is -1.0"),
        (("a", "--temperature", "warm"), "invalid float value: 'warm'"),
        (("a", "--top-p", "0"), "top_p is 0.0"),
        (("a", "--top-k", "0"), "top_k is 0"),
        (("a", "--min-p", "1"), "min_p is 1.0"),
        (("a", "--max-tokens", "0"), "max_tokens is 0"),
        (("a", "--seed", "-1"), "seed is -1"),
        (("a", "--stop", ""), "stop is ('',)"),
        (("a", "--json", "--stream"), "not allowed with argument"),
        (("a", "--prompt-file", "x"), "more than one source"),
        (("--prompt-file", "/nowhere/prompt.txt"), "/nowhere/prompt.txt cannot be read: No such"),
        (("--prompt-file", "/"), "/ cannot be read"),
    ],
)
def test_wrong_usage_is_one_line_with_status_2(
    deepinfer: Run, arguments: tuple[str, ...], message: str
) -> None:
    done = deepinfer("generate", *arguments, "--model", "/nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    first, *others = done.stderr.splitlines()
    assert message in first
    assert all(line.startswith("hint: ") for line in others)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe", "is not text"),
        (b"", "holds no prompt"),
        (b'{"prompt": "a"}\n{', ":2 is not JSON"),
        (b"[1]", ":1 is not a prompt"),
        (b'{"prompt": 1}', ":1: prompt is no text"),
        (b'{"token_ids": [true]}', ":1 is no list of token ids"),
        (b'{"prompt": "a", "max_tokens": 1}', ":1 has the unknown key 'max_tokens'"),
        (b'{"prompt": "a", "token_ids": [1]}', ":1 is not a prompt"),
        (b"{}", ":1 is not a prompt"),
        (b'{"prompt": "a", "prompt": "b"}', ":1 is not JSON: the key prompt stands twice"),
        (b'{"prompt": "a"}\n\xef\xbb\xbf{"prompt": "b"}', ":2 is not JSON"),
    ],
)
def test_a_prompt_file_that_cannot_be_used_is_named_with_its_line(
    deepinfer: Run, tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(content)
    done = deepinfer("generate", "--prompt-file", str(file), "--model", "/nowhere")
    assert done.returncode == 2
    assert f"{file}" in done.stderr
    assert message in done.stderr


def test_a_lone_refused_prompt_is_wrong_usage(generate: Run) -> None:
    done = generate("--token-ids", "999")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: token 0 of prompt is 999\nhint: ")
    shown = json.loads(generate("", "--json").stdout)
    assert shown["error"]["message"] == "the prompt is empty"


def test_several_prompts_cannot_be_streamed(generate: Run, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a"}\n{"prompt": "b"}')
    done = generate("--prompt-file", str(file), "--stream")
    assert done.returncode == 2
    assert "--stream with 2 prompts" in done.stderr


@pytest.mark.parametrize("content", [None, "{", "{}"])
def test_a_model_folder_that_is_none_fails_in_one_line(
    deepinfer: Run, tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    done = deepinfer("generate", "a", "--model", str(tmp_path))
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) <= 2


def test_an_interrupt_during_generation_ends_with_130(
    generate: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(engine: Engine) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Engine, "step", interrupted)
    done = generate("a")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "error: interrupted\n")


def test_an_interrupt_while_weights_are_read_ends_with_130(
    generate: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(checkpoint: Checkpoint, name: str, rows: range | None = None) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "quant", interrupted)
    done = generate("a")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "error: interrupted\n")


def start(byte_checkpoint: Path, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "deepinfer_core", "generate", "Once", "--ignore-eos"]
    limits = ["--set", "engine.max_num_seqs=1", "--model", str(byte_checkpoint)]
    environ = {name: text for name, text in os.environ.items() if "DEEPINFER_" not in name}
    return subprocess.Popen(
        [*command, *limits, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ,
        **options,
    )


def test_ctrl_c_in_the_middle_of_a_stream_ends_with_130(byte_checkpoint: Path) -> None:
    with start(byte_checkpoint, "--stream", "--max-tokens", "2000") as process:
        assert process.stdout is not None
        assert process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        _, problems = process.communicate(timeout=60)
    assert process.returncode == 130
    assert problems == b"error: interrupted\n"


def test_a_reader_that_leaves_ends_the_command_without_a_word(byte_checkpoint: Path) -> None:
    with start(byte_checkpoint, "--stream", "--max-tokens", "2000") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1)
        process.stdout.close()
        problems = process.stderr.read()
        process.wait(timeout=60)
    assert process.returncode == 1
    assert problems == b""


def test_problems_of_prompts_do_not_get_among_the_texts_without_standard_error(
    generate: Run,
    expected: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": ""}\n{"prompt": "Once"}\n')
    monkeypatch.setattr(sys, "stderr", None)
    done = generate("--prompt-file", str(file), *GREEDY)
    assert (done.returncode, done.stdout) == (1, expected("Once") + "\n")


def test_a_line_of_brackets_without_end_is_wrong_usage(generate: Run, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("[" * 100_000)
    done = generate("--prompt-file", str(file))
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {file}:1 is not JSON")
