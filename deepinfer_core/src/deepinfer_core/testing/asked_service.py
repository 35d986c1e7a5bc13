"""What does a running service hold, by its metrics, by its system and by its own account?

``AskedService`` starts this module as a program: ``deepinfer serve`` that can also be asked what it
holds. The program takes the arguments of ``deepinfer serve``. Each line on standard input is
answered with a JSON object on standard output: Python objects behind a collection of garbage, tasks
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
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType

__all__ = ["HELD", "AskedService", "answer_questions", "children", "metrics_of", "port_of"]

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


class AskedService:
    """A service in a process of its own, on a free port, and what it holds.

    Args:
        settings: ``name=value`` each, as of the option ``--set``.

    Attributes:
        process: the one that speaks HTTP.
        port: that it listens on.
        engine: number of the engine's process.
    """

    def __init__(self, settings: Sequence[str]) -> None:
        module = "deepinfer_core.testing.asked_service"
        command = [sys.executable, "-P", "-m", module, "--port", "0"]
        command += [part for text in settings for part in ("--set", text)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.port = port_of(self.process)
        [self.engine] = children(self.process.pid)

    def __enter__(self) -> AskedService:
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

    def metrics(self) -> dict[str, float]:
        """Each sample of ``/metrics`` by its name and labels."""
        return metrics_of(f"http://127.0.0.1:{self.port}/metrics")

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
        """Of both processes; connections that were closed must have been forgotten."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        front = json.loads(self.process.stdout.readline())
        place = Path(f"/proc/{self.engine}")
        return {
            **front,
            "resident_bytes": _resident_bytes(self.process.pid),
            "engine_resident_bytes": _resident_bytes(self.engine),
            "engine_files": len(os.listdir(place / "fd")),
            "engine_threads": len(os.listdir(place / "task")),
        }

    def stop(self) -> int:
        """End it as an operator does; its exit status."""
        self.process.terminate()
        return self.process.wait(timeout=_END_S)


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
    """Answer each line of standard input, in a thread of its own.

    Args:
        before: called before each answer.
    """

    def answer() -> None:
        for _ in sys.stdin:
            before()
            sys.stdout.write(json.dumps(_own_state()) + "\n")
            sys.stdout.flush()

    threading.Thread(target=answer, daemon=True).start()


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
    answer_questions()
    raise SystemExit(import_module("deepinfer_core.cli").main(["serve", *sys.argv[1:]]))
