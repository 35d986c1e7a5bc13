"""What does a running service hold, by its metrics, by its system and by its own account?

``AskedService`` starts this module as a program: ``deepinfer serve`` that can also be asked what it
holds, with the arguments of ``deepinfer serve``. ``answer_questions`` answers each line on standard
input with a JSON object on standard output: Python objects behind a collection of garbage, tasks
that have not ended, threads and descriptors. What the allocator kept is given back by then, so that
whoever asked may look at the process's resident memory. Needs Linux, for its ``/proc``.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = [
    "HELD",
    "AskedProcess",
    "AskedService",
    "answer_questions",
    "children",
    "grown",
    "metrics_of",
    "port_of",
]

HELD = (
    "deepinfer_requests_running",
    "deepinfer_requests_waiting",
    'deepinfer_kv_cache_blocks{state="used"}',
    'deepinfer_state_slots{state="used"}',
    "deepinfer_http_requests_waiting",
)
"""Metrics that must be 0 when nobody asks."""

_ANSWERED = "deepinfer_http_requests_in_work"
_ADMITTED = (
    "deepinfer_requests_running",
    "deepinfer_requests_waiting",
    "deepinfer_http_requests_waiting",
)
_SETTLE_S = 30.0
_END_S = 60.0
_CLOSING_S = 5.0


class AskedProcess:
    """A process that answers ``answer_questions``, and shows an address on its standard output.

    Args:
        command: runs it.

    Attributes:
        process: that runs.
        url: the address.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.url = f"http://127.0.0.1:{port_of(self.process)}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def state(self) -> dict[str, int]:
        """What it says that it holds, and how much memory it then has."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        found: dict[str, int] = json.loads(self.process.stdout.readline())
        return {**found, "resident_bytes": _resident_bytes(self.process.pid)}

    def end(self) -> int:
        """Let its questions end; its exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.stdin = None
        return self.process.wait(timeout=_END_S)


class AskedService(AskedProcess):
    """A service with the settings ``name=value`` on a free port.

    Attributes:
        engine: number of the engine's process.
    """

    def __init__(self, settings: Sequence[str]) -> None:
        module = "deepinfer_core.testing.asked_service"
        options = [part for text in settings for part in ("--set", text)]
        super().__init__([sys.executable, "-P", "-m", module, "--port", "0", *options])
        [self.engine] = children(self.process.pid)

    @property
    def port(self) -> int:
        """That it listens on."""
        return int(self.url.rpartition(":")[2])

    def metrics(self) -> dict[str, float]:
        """Each sample of ``/metrics`` by its name and labels."""
        return metrics_of(f"{self.url}/metrics")

    def held(self) -> dict[str, float]:
        """What the metrics say is held, as soon as it is nothing or the time to settle is over."""
        until_s = time.monotonic() + _SETTLE_S
        while True:
            found = self.metrics()
            held = {name: found[name] for name in HELD}
            held[_ANSWERED] = found[_ANSWERED] - 1  # which is the call that asks
            if not any(held.values()) or time.monotonic() > until_s:
                return held
            time.sleep(0.1)

    def admitted(self) -> float:
        """Requests that the engine has, or that wait for their turn before it."""
        return sum(map(self.metrics().__getitem__, _ADMITTED))

    def state(self) -> dict[str, int]:
        """Of both processes."""
        place = Path(f"/proc/{self.engine}")
        return {
            **super().state(),
            "engine_resident_bytes": _resident_bytes(self.engine),
            "engine_files": len(os.listdir(place / "fd")),
            "engine_threads": len(os.listdir(place / "task")),
        }


def grown(
    before: Mapping[str, int], state: Callable[[], Mapping[str, int]], kinds: Sequence[str]
) -> dict[str, int]:
    """What there is more or less of, as soon as it is nothing or a while has passed.

    Args:
        before: an earlier state.
        state: gives one.
        kinds: of things in it that come and go with connections, which end a moment later.
    """
    until_s = time.monotonic() + _CLOSING_S
    while True:
        after = state()
        found = {kind: after[kind] - before[kind] for kind in kinds if after[kind] != before[kind]}
        if not found or time.monotonic() > until_s:
            return found
        time.sleep(0.05)


def metrics_of(url: str) -> dict[str, float]:
    """Each sample of a metrics page by its name and labels."""
    with urllib.request.urlopen(url) as answer:
        lines = str(answer.read(), "utf-8").splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def children(process: int) -> list[int]:
    """Processes that the threads of a process started."""
    files = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for file in files for child in file.read_text().split()]


def port_of(process: subprocess.Popen[str]) -> int:
    """From the address in the summary of a service.

    Raises:
        RuntimeError: it ended before it showed one.
    """
    assert process.stdout is not None
    for line in process.stdout:
        if (found := re.search(r"http://\S+:(\d+)", line)) is not None:
            return int(found.group(1))
    raise RuntimeError("deepinfer serve did not start")


def _resident_bytes(process: int) -> int:
    [kilobytes] = re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    return int(kilobytes) * 1024


def answer_questions(before: Callable[[], object] = lambda: None) -> None:
    """Answer each line of standard input until it ends.

    Args:
        before: called before each answer.
    """
    for _ in sys.stdin:
        before()
        sys.stdout.write(json.dumps(_own_state()) + "\n")
        sys.stdout.flush()


def _own_state() -> dict[str, int]:
    """What must not grow."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    # The service freezes what it starts with, its own tasks among it.
    gc.unfreeze()
    objects = gc.get_objects()
    return {
        "objects": len(objects),
        "tasks": sum(isinstance(one, asyncio.Task) and not one.done() for one in objects),
        "threads": len(os.listdir("/proc/self/task")),
        "files": len(os.listdir("/proc/self/fd")),
    }


if __name__ == "__main__":
    threading.Thread(target=answer_questions, daemon=True).start()
    raise SystemExit(import_module("deepinfer_core.cli").main(["serve", *sys.argv[1:]]))
