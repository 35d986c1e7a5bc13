"""How does the engine talk to a process that compiles grammars?

A thread of its own reads the answers, so that waiting for one can have an end.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import threading
from typing import Any

from deepinfer_core.engine.grammar_child import Answer, ChildStart, read_frame, write_frame
from deepinfer_core.errors import EngineError
from deepinfer_core.interfaces.grammar import GrammarText
from deepinfer_core.plugin.children import end_family

__all__ = ["GrammarProcess"]

_START_TIMEOUT_S = 120.0
"""For a child to start and import its engine, which may bring a tensors library along."""


class GrammarProcess:
    """A process that compiles.

    Args:
        start: what it is told.

    Raises:
        EngineError: the component cannot be had there.
        OSError, EOFError: it did not start.
        queue.Empty: it took too long to start.
    """

    def __init__(self, start: ChildStart) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "deepinfer_core.engine.grammar_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._answers: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self._pump, daemon=True, name="deepinfer-grammar-answers").start()
        try:
            self._begin(start)
        except BaseException:
            self.kill()
            raise

    def _begin(self, start: ChildStart) -> None:
        self._send(list(sys.path))
        self._send(start)
        refused = self._receive(_START_TIMEOUT_S)
        if refused is not None:
            raise EngineError(refused.message, hint=refused.hint)

    def ask(self, grammar: GrammarText, timeout_s: float) -> Answer:
        """Compile one grammar.

        Raises:
            OSError, EOFError: the process has gone.
            queue.Empty: it took too long.
        """
        self._send(grammar)
        answer: Answer = self._receive(timeout_s)
        return answer

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

    def _receive(self, timeout_s: float) -> Any:
        answer = self._answers.get(timeout=timeout_s)
        if isinstance(answer, EOFError):
            raise answer
        return answer

    def _pump(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(OSError, ValueError), self._process.stdout as stream:
            try:
                while True:
                    self._answers.put(read_frame(stream))
            except EOFError as error:
                self._answers.put(error)
