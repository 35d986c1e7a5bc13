"""How does foreign code run so that its abort, exit or hang is a fact and not our end?

A child process runs tasks one after the other and answers each with one line of JSON. When it dies
or goes silent, the task that was running is to blame; a new child takes the tasks behind it. The
answers travel over a private copy of standard output, so prints of foreign code cannot break them.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

__all__ = ["Outcome", "end_family", "run_tasks", "serve_tasks"]

_START_TIMEOUT_S = 60.0
"""For the interpreter to start, before any foreign code runs; a busy machine may need seconds."""

_EXIT_TIMEOUT_S = 5.0
"""Between the end of a child's output and its exit status."""

_OUTPUT_TAIL_BYTES = 4000
"""How much of a dead child's own words a report keeps; enough for a native stack."""

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one task.

    Attributes:
        answer: what it answered; None if it did not.
        problem: why there is no answer: ``ended with -6``; empty if there is one.
        timed_out: whether it was stopped for being silent.
        elapsed_s: from the task's start to its end.
        output: the last of what the child wrote to standard error.
    """

    answer: Answer | None
    problem: str = ""
    timed_out: bool = False
    elapsed_s: float = 0.0
    output: str = ""


def run_tasks(module: str, tasks: Sequence[Mapping[str, Any]], timeout_s: float) -> list[Outcome]:
    """Run tasks in child processes.

    Args:
        module: program that calls ``serve_tasks``, run with ``python -m``.
        tasks: JSON data, one item a task.
        timeout_s: for each task.

    Returns:
        One outcome a task, in order.
    """
    outcomes: list[Outcome] = []
    while len(outcomes) < len(tasks):
        outcomes += _run_until_lost(module, tasks[len(outcomes) :], timeout_s)
    return outcomes


def serve_tasks(work: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
    """The child's side: read tasks from standard input, answer each."""
    request = json.load(sys.stdin)
    sys.path[:] = [*request["path"], *(part for part in sys.path if part not in request["path"])]
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as channel:
        os.dup2(2, 1)
        print("{}", file=channel, flush=True)
        for task in request["tasks"]:
            print(json.dumps(work(task)), file=channel, flush=True)
    # Threads or exit handlers of foreign code must not keep an answered child alive.
    os._exit(0)


def _run_until_lost(
    module: str, tasks: Sequence[Mapping[str, Any]], timeout_s: float
) -> list[Outcome]:
    """Outcomes up to and including the first task without an answer."""
    outcomes: list[Outcome] = []
    with tempfile.TemporaryFile() as errors:
        child = _Child(module, tasks, errors)
        try:
            ready = child.next_outcome(_START_TIMEOUT_S)
            if ready.answer is None:
                return [ready]
            for _ in tasks:
                outcomes.append(child.next_outcome(timeout_s))
                if outcomes[-1].answer is None:
                    break
        finally:
            child.kill()
    return outcomes


def end_family(process: subprocess.Popen[Any]) -> None:
    """Make sure that a process which leads a session, and whatever it started, are gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()


class _Child:
    """A child process and the lines that it has written so far."""

    def __init__(self, module: str, tasks: Sequence[Mapping[str, Any]], errors: IO[bytes]) -> None:
        self._errors = errors
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            encoding="utf-8",
            start_new_session=True,
        )
        request = json.dumps({"path": sys.path, "tasks": list(tasks)})
        threading.Thread(
            target=self._pump, args=(request,), daemon=True, name="deepinfer-child"
        ).start()

    def next_outcome(self, wait_s: float) -> Outcome:
        """The next answer, or what kept the child from giving one."""
        started = time.monotonic()
        try:
            line = self._lines.get(timeout=wait_s)
        except queue.Empty:
            outcome = Outcome(answer=None, problem=f"no answer within {wait_s:g} s", timed_out=True)
        else:
            outcome = self._ended() if line is None else Outcome(answer=json.loads(line))
        if outcome.answer is None:
            self.kill()
            outcome = replace(outcome, output=self._tail())
        return replace(outcome, elapsed_s=time.monotonic() - started)

    def kill(self) -> None:
        """Make sure that the child and whatever it started are gone."""
        end_family(self._process)

    def _pump(self, request: str) -> None:
        """Hand over the request and collect lines; None marks the end of output."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError), self._process.stdin as stdin:
            stdin.write(request)
        with self._process.stdout as stdout:
            for line in stdout:
                self._lines.put(line)
        self._lines.put(None)

    def _ended(self) -> Outcome:
        # Output closes a moment before the exit status can be read.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_EXIT_TIMEOUT_S)
        status = self._process.returncode
        return Outcome(
            answer=None, problem=f"ended with {'no status' if status is None else status}"
        )

    def _tail(self) -> str:
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _OUTPUT_TAIL_BYTES))
        return self._errors.read().decode("utf-8", "replace").strip()
