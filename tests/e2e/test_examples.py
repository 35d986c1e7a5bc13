"""The examples run as they stand."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import deepinfer_core
from deepinfer_core import cli

EXAMPLES = Path(deepinfer_core.__file__).parents[3] / "examples"


def run_example(name: str, checkpoint: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    environ = {name: text for name, text in os.environ.items() if "DEEPINFER_" not in name}
    return subprocess.run(
        [sys.executable, str(EXAMPLES / name), str(checkpoint)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environ,
        timeout=120,
    )


def test_the_offline_example_runs_to_its_end(byte_checkpoint: Path, tmp_path: Path) -> None:
    done = run_example("offline_inference.py", byte_checkpoint, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n== ") == 4
    assert "tokens]" in done.stdout


def test_the_batch_of_the_readme_answers_every_request(
    byte_checkpoint: Path, tmp_path: Path
) -> None:
    root = EXAMPLES.parent
    [command] = re.findall(r"bin/deepinfer (batch .*?) +#", (root / "README.md").read_text())
    verb, source, option, target = shlex.split(command)
    found = tmp_path / target
    chosen = ["--model", str(byte_checkpoint)]
    assert cli.main([verb, str(root / source), option, str(found), *chosen]) == 0
    answers = [json.loads(line) for line in found.read_text().splitlines()]
    assert [answer["error"] for answer in answers] == [None] * 3
    assert f"/{target}" in (root / ".gitignore").read_text().splitlines()


def test_the_offline_example_says_that_a_random_checkpoint_cannot_chat(tmp_path: Path) -> None:
    folder = tmp_path / "random"
    assert cli.main(["checkpoint", "make-random", str(folder), "--size-bytes", "3000000"]) == 0
    done = run_example("offline_inference.py", folder, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "use generate" in done.stdout


def test_the_asynchronous_example_runs_to_its_end(byte_checkpoint: Path, tmp_path: Path) -> None:
    done = run_example("async_streaming.py", byte_checkpoint, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n== ") == 4
    assert done.stdout.count("[abort") == 2
    assert "4 answers are in work, of 4 that may be" in done.stdout
