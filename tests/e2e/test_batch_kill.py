"""A batch that is killed again and again, and finished, is one that was never disturbed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.testing.seeds import seed_of

KILLS = 20
REQUESTS = 100

# Loading torch takes longer than the batch, so it is loaded once; each run is a process of its own.
NURSERY = """
import os, sys
import deepinfer_core.engine.loading, deepinfer_core.engine.runner
from deepinfer_core.cli import main
for command in sys.stdin:
    child = os.fork()
    if child == 0:
        os._exit(main(command.split()))
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

# The compiled components would be done before most of the kills.
SLOWLY = [
    part
    for kind in ("attention", "gemm", "transform", "sampler")
    for part in ("--set", f"components.{kind}.use=core.reference")
]

Start = Callable[[Path, Path], tuple[int, Callable[[], int]]]


@pytest.fixture
def start(byte_checkpoint: Path) -> Iterator[Start]:
    """Start a batch; gives its process id and a function that waits for its status."""
    clean = {name: text for name, text in os.environ.items() if "DEEPINFER_" not in name}
    with subprocess.Popen(
        [sys.executable, "-P", "-c", NURSERY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=clean,
    ) as nursery:
        asked, told = nursery.stdin, nursery.stdout
        assert asked is not None
        assert told is not None

        def run(source: Path, target: Path) -> tuple[int, Callable[[], int]]:
            given = ["batch", source, "-o", target, "--model", byte_checkpoint, *SLOWLY]
            print(*given, file=asked, flush=True)
            return int(told.readline()), lambda: int(told.readline())

        yield run


def request_line(number: int) -> str:
    """Greedy, seeded and unseeded ones, of different lengths."""
    body: dict[str, Any] = {
        "prompt": "x" * (1 + number * 7 % 50),
        "max_tokens": 1 + number % 13,
        "ignore_eos": True,
    }
    body |= ({"temperature": 0}, {"seed": number}, {})[number % 3]
    line = {"custom_id": str(number), "method": "POST", "url": "/v1/completions", "body": body}
    return json.dumps(line) + "\n"


def answers(path: Path) -> dict[str, Any]:
    """What was answered, each once, without the time of it."""
    found: dict[str, Any] = {}
    for text in path.read_text().splitlines():
        shown = json.loads(text)
        assert shown["custom_id"] not in found
        del shown["response"]["body"]["created"]
        found[shown["custom_id"]] = shown
    return found


def wait_for_a_moment(draw: random.Random, target: Path, number: int) -> None:
    """While the model is loaded for one, behind the next answer for another."""
    if number % 2:
        time.sleep(draw.uniform(0, 0.6))
        return
    begun = whole_lines(target)
    while whole_lines(target) <= begun:
        time.sleep(0.001)
    time.sleep(draw.uniform(0, 0.05))


def whole_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.slow
def test_killing_a_batch_again_and_again_changes_no_answer(
    start: Start, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    source, target, undisturbed = (tmp_path / name for name in ("in.jsonl", "out", "whole"))
    source.write_text("".join(map(request_line, range(REQUESTS))))
    _, status = start(source, undisturbed)
    assert status() == 0
    draw = random.Random(seed_of(request))
    halfway = 0
    for number in range(KILLS):
        process, status = start(source, target)
        wait_for_a_moment(draw, target, number)
        os.kill(process, signal.SIGKILL)
        assert status() == -signal.SIGKILL
        halfway += 0 < whole_lines(target) < REQUESTS
    assert halfway >= KILLS // 2
    _, status = start(source, target)
    assert status() == 0
    assert answers(target) == answers(undisturbed)
    assert len(answers(target)) == REQUESTS
