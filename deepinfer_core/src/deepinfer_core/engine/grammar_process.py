"""How does the engine talk to a process that compiles grammars?

A thread of its own reads the answers, so that waiting for one ends when the process does, whatever
it has started.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from typing import Any

from deepinfer_core.engine.grammar_child import (
    GIVE_UP,
    Answer,
    ChildStart,
    read_frame,
    write_frame,
)
from deepinfer_core.errors import EngineError
from deepinfer_core.interfaces.grammar import GrammarText
from deepinfer_core.plugin.children import end_family

__all__ = ["GrammarProcess"]

_START_TIMEOUT_S = 120.0
"""For a child to start and import its engine, which may bring a tensors library along."""

_GONE_S = 1.0
"""For a process that has closed its output to be gone."""

_FAULTS = frozenset(
    getattr(signal, name)
    for name in ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE")
    if hasattr(signal, name)
)
"""Signals that a process brings upon itself; a system that lacks memory sends others."""


class GrammarProcess:
    """A process that compiles, once it has begun.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "deepinfer_core.engine.grammar_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._answers: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self._pump, daemon=True, name="deepinfer-grammar-answers").start()

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def begin(self, start: ChildStart) -> None:
        """Wait until it is ready.

        Args:
            start: what it is told.

        Raises:
            EngineError: the component cannot be had there.
            OSError, EOFError: it did not start.
            queue.Empty: it took too long to start.
        """
        self._send(list(sys.path))
        self._send(start)
        refused = self._receive(_START_TIMEOUT_S)
        if refused is not None:
            raise EngineError(refused.message, hint=refused.hint)

    def ask(self, grammar: GrammarText) -> Answer:
        """Compile one grammar; another thread may have it given up.

        Raises:
            OSError, EOFError: the process has gone.
        """
        self._send(grammar)
        answer: Answer = self._receive(None)
        return answer

    def give_up(self) -> bool:
        """Have it answer soon, if it is in code that can be stopped; False: it never is."""
        if GIVE_UP is None:
            return False
        self._process.send_signal(GIVE_UP)
        return True

    def crash(self) -> str:
        """Name of the fault by which the gone process ended; empty if it was none of its own."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(_GONE_S)
            if -code in _FAULTS:
                return signal.Signals(-code).name
        return ""

    def strike(self) -> None:
        """Have the process ended, without waiting until it is gone; ``kill`` is still to come."""
        if not hasattr(os, "killpg"):
            self._process.kill()
        elif self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """End the process and whatever it started. May be called from any thread."""
        end_family(self._process)
        with contextlib.suppress(OSError, ValueError):
            if self._process.stdin is not None:
                self._process.stdin.close()

    def _send(self, value: object) -> None:
        assert self._process.stdin is not None
        try:
            write_frame(self._process.stdin, value)
        except ValueError as error:  # killed by another thread, which closed it
            raise EOFError(str(error)) from error

    def _receive(self, timeout_s: float | None) -> Any:
        answer = self._answers.get(timeout=timeout_s)
        if isinstance(answer, EOFError):
            self._answers.put(answer)  # for whoever asks again
            raise answer
        return answer

    def _pump(self) -> None:
        assert self._process.stdout is not None
        try:
            with contextlib.suppress(EOFError, OSError, ValueError), self._process.stdout as stream:
                while True:
                    self._answers.put(read_frame(stream))
        finally:
            self._answers.put(EOFError("the process that compiles grammars has gone"))
