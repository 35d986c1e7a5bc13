"""How are many kernels compiled at once, and what became of each?

By child processes, each with one kernel at a time: compilers hold the interpreter's lock, and one
that dies takes nothing with it but the kernel that it had. Whoever starts an engine needs no main
guard, as children run a program of their own.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from deepinfer_core.engine.kernels.worker import last_words, receive, send
from deepinfer_core.interfaces.operators.wanted import WantedKernel
from deepinfer_core.plugin.children import end_family
from deepinfer_core.telemetry.progress import ProgressStream

__all__ = ["LATE", "CompiledKernel", "compile_all", "default_jobs"]

LATE = "there was no time left"

_PROGRAM = "deepinfer_core.engine.kernels.worker"

_JOB_BYTES = 2 << 30
"""Memory of a worker with its compilers: an interpreter with torch, and nvcc at its largest."""

_TAIL_BYTES = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledKernel:
    """What became of one kernel.

    Attributes:
        kernel: which one.
        problem: the last words of the compiler; empty if the folder has the kernel now.
        elapsed_s: how long it took.
    """

    kernel: WantedKernel
    problem: str
    elapsed_s: float


def default_jobs(threads: int, memory_bytes: int) -> int:
    """Workers that a machine has room for.

    Args:
        threads: hardware threads that this process may use.
        memory_bytes: memory that is free; 0: unknown.
    """
    room = memory_bytes // _JOB_BYTES if memory_bytes else threads
    return max(1, min(threads, room))


def compile_all(
    kernels: Sequence[WantedKernel],
    jobs: int,
    progress: ProgressStream,
    *,
    limit_s: float = math.inf,
) -> list[CompiledKernel]:
    """Compile kernels in parallel; a failure keeps no other kernel from being tried.

    Args:
        kernels: to compile.
        jobs: processes at most.
        progress: told about the phase ``kernels.compile``.
        limit_s: no kernel is begun after it; what is under way is finished.

    Returns:
        One result a kernel, in the order of ``kernels``; ``LATE`` is the problem of those that
        were not begun.
    """
    done: dict[WantedKernel, CompiledKernel] = {}
    with progress.phase("kernels.compile", total=len(kernels), unit="kernels") as phase:
        crew = _Crew(kernels, min(jobs, len(kernels)), time.monotonic() + limit_s)
        try:
            for _ in kernels:
                result = crew.results.get()
                done[result.kernel] = result
                phase.advance(detail=result.kernel.operator)
        finally:
            crew.stop()
    return [done[kernel] for kernel in kernels]


class _Crew:
    """Threads that each look after one worker.

    Args:
        kernels: taken from the front by whoever is free.
        size: workers.
        ends_s: on the monotonic clock; no kernel is begun after it.

    Attributes:
        results: one a kernel, in the order in which they are done.
    """

    def __init__(self, kernels: Sequence[WantedKernel], size: int, ends_s: float) -> None:
        self.results: queue.Queue[CompiledKernel] = queue.Queue()
        self._left = deque(kernels)
        self._ends_s = ends_s
        self._lock = threading.Lock()
        self._workers: set[_Worker] = set()
        self._is_stopped = False
        self._threads = [
            threading.Thread(target=self._look_after, daemon=True, name="deepinfer-compile")
            for _ in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Give up what is under way and end all workers."""
        with self._lock:
            self._is_stopped = True
            self._left.clear()
            workers = list(self._workers)
        for worker in workers:
            worker.kill()
        for thread in self._threads:
            thread.join()

    def _look_after(self) -> None:
        worker: _Worker | None = None
        while (kernel := self._next()) is not None:
            started_s = time.monotonic()
            if started_s > self._ends_s:
                self.results.put(CompiledKernel(kernel=kernel, problem=LATE, elapsed_s=0.0))
                continue
            worker = worker or self._hire()
            problem = worker.compile(kernel) if worker else "the compilation was given up"
            if worker is not None and worker.is_lost:
                self._dismiss(worker)
                worker = None
            elapsed_s = time.monotonic() - started_s
            self.results.put(CompiledKernel(kernel=kernel, problem=problem, elapsed_s=elapsed_s))
        if worker is not None:
            self._dismiss(worker)

    def _next(self) -> WantedKernel | None:
        with self._lock:
            return self._left.popleft() if self._left else None

    def _hire(self) -> _Worker | None:
        with self._lock:
            if self._is_stopped:
                return None
            worker = _Worker()
            self._workers.add(worker)
            return worker

    def _dismiss(self, worker: _Worker) -> None:
        with self._lock:
            self._workers.discard(worker)
        worker.close()


class _Worker:
    """One child process.

    Attributes:
        is_lost: whether it ended before its time.
    """

    def __init__(self) -> None:
        self.is_lost = False
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - see close
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self._tell(pickle.dumps(sys.path))

    def compile(self, kernel: WantedKernel) -> str:
        """Wait for one kernel; empty, or what went wrong."""
        assert self._process.stdout is not None
        self._tell(pickle.dumps(kernel))
        answer = None if self.is_lost else receive(self._process.stdout)
        if answer is not None:
            return answer.decode()
        self.is_lost = True
        status = self._process.wait()
        return last_words(f"{self._tail()}\nthe compiling process ended with {status}")

    def close(self) -> None:
        """End the process and give back what it held; only by who asks it."""
        self.kill()
        for channel in (self._process.stdin, self._process.stdout, self._errors):
            if channel is not None:
                with contextlib.suppress(OSError):  # what was not sent does not matter any more
                    channel.close()

    def kill(self) -> None:
        """Make sure that the process and its compilers are gone; may be called again."""
        end_family(self._process)

    def _tell(self, message: bytes) -> None:
        assert self._process.stdin is not None
        try:
            send(self._process.stdin, message)
        except OSError:
            self.is_lost = True

    def _tail(self) -> str:
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _TAIL_BYTES))
        return self._errors.read().decode("utf-8", "replace")
