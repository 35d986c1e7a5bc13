"""``deepinfer bench serve``: figures of a scripted service, and what is refused before that."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools", reason="pip install 'deepinfer-core[bench]' runs these")
pytest.importorskip("uvloop", reason="pip install 'deepinfer-core[bench]' runs these")

from deepinfer_core.testing.scripted_service import Asked, Reply, ScriptedService, streamed_answer

Run = Callable[..., subprocess.CompletedProcess[str]]
FIELDS = {
    "name", "value", "unit", "ratio", "hardware", "date", "commit", "command", "requests", "failed",
    "generator_was_bottleneck",
}  # fmt: skip
SMALL = ("--output-len", "3", "--requests", "4", "--alone", "2")


def paced(asked: Asked) -> Reply:
    return streamed_answer(asked, pause_s=0.002)


def test_figures_of_every_load_are_objects_with_their_references(
    deepinfer: Run, tmp_path: Path
) -> None:
    file = tmp_path / "found.json"
    with ScriptedService(paced) as service:
        done = deepinfer(
            "bench", "serve", "--url", service.url, "--users", "1,2", *SMALL,
            "--hardware", "a machine", "--json", "--out", str(file),
        )  # fmt: skip
    assert done.returncode == 0
    found: list[dict[str, Any]] = json.loads(done.stdout)
    assert json.loads(file.read_text()) == found
    assert all(one.keys() - {"peer", "bound"} == FIELDS for one in found)
    assert all(len(one.keys() & {"peer", "bound"}) == 1 for one in found)
    load = "endpoint=chat,model=scripted,input=128,output=3,cache=shared"
    names = [one["name"] for one in found]
    for users in (1, 2):
        assert f"serve.output_tokens[users={users},{load}]" in names
        assert f"serve.first_token.p99[users={users},{load}]" in names
    assert found[0]["hardware"].startswith("a machine; generator on ")
    assert {one["requests"] for one in found} == {4}


def test_a_table_and_a_plot_show_each_load(deepinfer: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pip install 'deepinfer-core[bench]' runs this")
    plot = tmp_path / "plot.svg"
    with ScriptedService(paced) as service:
        done = deepinfer(
            "bench", "serve", "--url", service.url, "--rate", "50,100", *SMALL, "--plot", str(plot)
        )
    assert done.returncode == 0
    rows = [line.split()[0] for line in done.stdout.splitlines() if line]
    assert rows[-4:] == ["load", "alone", "rate=50", "rate=100"]
    assert plot.read_bytes().startswith(b"<?xml")


def test_prompts_of_a_folder_are_sent_as_texts_to_completions(
    deepinfer: Run, tmp_path: Path
) -> None:
    lines = [
        {"id": 1, "kind": "completion", "prompt": "Once upon"},
        {
            "id": 2,
            "kind": "tool_call",
            "messages": [{"role": "user", "content": "x"}],
            "tools": [{}],
        },
    ]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with ScriptedService() as service:
        done = deepinfer(
            "bench", "serve", "--url", service.url, "--prompts", str(tmp_path), "--users", "1",
            "--endpoint", "completions", "--model", "m", "--body", '{"ignore_eos": true}', *SMALL,
        )  # fmt: skip
    assert done.returncode == 0
    assert "input=completion," in done.stdout
    body = service.asked[-1].body
    assert body["prompt"].endswith("] Once upon")
    assert (body["model"], body["max_tokens"], body["ignore_eos"]) == ("m", 3, True)


def test_random_prompts_have_the_asked_length_as_the_service_counts(deepinfer: Run) -> None:
    with ScriptedService() as service:
        deepinfer(
            "bench", "serve", "--url", service.url, "--input-len", "40", "--users", "1", *SMALL
        )
    texts = [asked.body["messages"][0]["content"] for asked in service.asked if asked.body]
    # The service counts words; the salt in front of each prompt is one more.
    assert {len(text.split()) for text in texts[2:]} == {41}


def test_a_load_in_which_everything_failed_fails_the_command(deepinfer: Run) -> None:
    count = 0

    def answer_four(asked: Asked) -> Reply:
        nonlocal count
        count += asked.method == "POST"
        # Two for the lengths, one before the user alone and one of that user.
        return streamed_answer(asked) if count <= 4 else Reply(status=503, pieces=(b"",))

    with ScriptedService(answer_four) as service:
        done = deepinfer(
            "bench", "serve", "--url", service.url, "--users", "2", "--output-len", "3",
            "--requests", "2", "--alone", "1",
        )  # fmt: skip
    assert done.returncode == 1
    assert "2 http 503" in done.stdout


def test_a_key_of_a_file_goes_with_every_request(deepinfer: Run, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret\nnote\n")
    with ScriptedService() as service:
        deepinfer(
            "bench", "serve", "--url", service.url, "--key-file", str(tmp_path / "key"), *SMALL,
            "--users", "1",
        )  # fmt: skip
    assert {asked.headers["authorization"] for asked in service.asked} == {"Bearer secret"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--users", "0"), "--users is '0'"),
        (("--users", "1,x"), "--users is '1,x'"),
        (("--users", "1.5"), "--users is '1.5'"),
        (("--rate", "-1"), "--rate is '-1'"),
        (("--rate", "nan"), "--rate is 'nan'"),
        (("--requests", "0"), "--requests is 0"),
        (("--alone", "0"), "--alone is 0"),
        (("--timeout", "0"), "--timeout is 0"),
        (("--seed", "-1"), "--seed is -1"),
        (("--body", "[]"), "--body is '[]'"),
        (("--plot", "plot.txt"), "--plot is plot.txt"),
        (("--key-file", "nowhere"), "nowhere cannot be read"),
        (("--url", "localhost:8000"), "the address is 'localhost:8000'"),
        (("--input-len", "0"), "--input-len is '0'"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    deepinfer: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, str],
    message: str,
) -> None:  # fmt: skip
    pytest.importorskip("matplotlib", reason="pip install 'deepinfer-core[bench]' runs this")
    monkeypatch.chdir(tmp_path)
    done = deepinfer("bench", "serve", *options)
    assert done.returncode != 0
    assert done.stderr.startswith(f"error: {message}")


def test_a_service_that_is_not_there_is_an_error_in_words(deepinfer: Run) -> None:
    with ScriptedService() as service:
        pass
    done = deepinfer("bench", "serve", "--url", service.url)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: asked {service.url} for /models")
