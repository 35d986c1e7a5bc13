"""The command, as users start it."""

import argparse
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deepinfer_core.cli.serve import add_arguments, log_settings, served_settings, stopping
from deepinfer_core.config import load_settings, resolution

COMMAND = [sys.executable, "-P", "-m", "deepinfer_core", "serve"]


@contextmanager
def started(*options: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def refused(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=60)


def test_it_shows_what_was_loaded_serves_and_ends_well_after_a_signal(
    byte_checkpoint: Path,
) -> None:
    options = ["--set", "server.protocols=core.completions", "--port", "0"]
    with started("--model", str(byte_checkpoint), *options) as process:
        assert process.stdout is not None
        lines: list[str] = []
        while not (lines and lines[-1].startswith("serving at ")):
            line = process.stdout.readline()
            assert line, process.stderr and process.stderr.read()
            lines.append(line.rstrip())
        text = "\n".join(lines)
        for shown in ("sampler", "blocks", "weights", "longest request", "core.completions"):
            assert shown in text
        url = lines[-1].removeprefix("serving at ")
        body = {"model": byte_checkpoint.name, "prompt": "ab", "max_tokens": 4, "temperature": 0}
        call = urllib.request.Request(
            f"{url}/v1/completions",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(call, timeout=30) as answer:
            usage = json.loads(answer.read())["usage"]
        assert usage["completion_tokens"] == 4
        with urllib.request.urlopen(url, timeout=30) as page:
            assert page.headers["content-type"].startswith("text/html")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stderr is not None
        errors = process.stderr.read()
        assert "weights.load: 0 of" in errors
        logged = [json.loads(line) for line in errors.splitlines() if line.startswith("{")]
        calls = [one for one in logged if one["event"] == "call.answered"]
        assert [(one["route"], one["status"]) for one in calls] == [("/v1/completions", 200)]
        assert "error:" not in errors
        assert "stopping: no request is in work" in errors.splitlines()
        assert "service.draining" not in errors  # it would say the same


@pytest.mark.parametrize(
    ("given", "level"),
    [([], "info"), (["telemetry.level=error"], "error"), (["telemetry.level=warning"], "warning")],
)
def test_calls_are_logged_where_the_settings_do_not_say_otherwise(
    given: list[str], level: str
) -> None:
    loaded = load_settings(None, given, environ={})
    assert log_settings(loaded).level == level
    assert loaded.settings.telemetry.level == (level if given else "warning")


@pytest.mark.parametrize(
    ("in_work", "shown"), [(1, "1 request is in work"), (2, "2 requests are in work")]
)
def test_a_service_that_stops_says_what_it_waits_for_and_until_when(
    in_work: int, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = time.localtime()
    stopping(in_work, 0.0)
    after = time.localtime()
    said = capsys.readouterr()
    times = [time.strftime("%H:%M:%S", moment) for moment in (before, after)]
    assert said.out == ""
    assert said.err in [
        f"stopping: {shown} and may end until {moment}, within 0 s; a second signal ends the wait\n"
        for moment in times
    ]


EARLY = """
import os, signal, sys
from deepinfer_core.cli import main, serve
def served_settings(args):
    try:
        os.kill(os.getpid(), signal.{number})
    except BaseException as error:  # as plugins are isolated
        print(type(error))
serve.served_settings = served_settings
sys.exit(main(["serve"]))
"""


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_signal_before_anything_is_loaded_ends_it_as_well(number: str) -> None:
    code = EARLY.format(number=number)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_open_address_without_keys_is_wrong_usage(byte_checkpoint: Path) -> None:
    done = refused("--model", str(byte_checkpoint), "--host", "0.0.0.0", "--port", "0")
    assert done.returncode == 2
    assert "no keys are set" in done.stderr
    assert "hint: set server.keys_file" in done.stderr
    assert done.stdout == ""


def test_a_port_in_use_is_found_before_anything_is_loaded(byte_checkpoint: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        done = refused("--model", str(byte_checkpoint), "--port", port)
    assert done.returncode == 2
    assert f"error: server.port {port} of 127.0.0.1 is in use" in done.stderr
    assert "weights.load" not in done.stderr


def test_a_checkpoint_that_cannot_be_loaded_ends_it_with_the_reason(tmp_path: Path) -> None:
    done = refused("--model", str(tmp_path), "--port", "0")
    assert done.returncode != 0
    assert done.stderr.splitlines()[-2 if "hint:" in done.stderr else -1].startswith("error: ")
    assert "Traceback" not in done.stderr


def test_without_a_grammar_component_that_works_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resolution, "host_candidates", lambda *given: [])
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert served_settings(parser.parse_args([])).settings.components.grammar.use == "none"
