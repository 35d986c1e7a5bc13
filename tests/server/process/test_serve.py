"""The command, as users start it."""

import argparse
import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deepinfer_core.cli.serve import add_arguments, served_settings
from deepinfer_core.config import resolution

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
        assert "error" not in errors


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
