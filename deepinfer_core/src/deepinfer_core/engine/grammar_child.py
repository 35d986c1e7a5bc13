"""Program: which rules does this grammar stand for? Runs where it may be killed.

Reads one ``ChildStart`` and then grammars from standard input, pickled behind their lengths, and
answers each on a private copy of standard output. Its parent may have it give a grammar up by a
signal, and ends it when it does not. How much memory one grammar may take it is told; when as much
has stayed behind, it ends with an answer.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import struct
import sys
import time
from dataclasses import dataclass
from importlib import import_module
from typing import IO, Any

from deepinfer_core.errors import DeepInferError, RequestError
from deepinfer_core.interfaces.grammar import Grammar, GrammarText, GrammarVocabulary
from deepinfer_core.plugin import Resolved, load
from deepinfer_core.plugin.resolved import describe

__all__ = [
    "GIVE_UP",
    "Answer",
    "ChildStart",
    "Compiled",
    "GaveUp",
    "Refused",
    "foreign_detail",
    "read_frame",
    "warm_up",
    "write_frame",
]

_LENGTH = struct.Struct("<Q")

_NICENESS = 10
"""Compiling must not take the cores of the step loop."""

_LONGEST_DETAIL = 200
"""Characters of it in the log."""

GIVE_UP: int | None = getattr(signal, "SIGUSR1", None)
"""Signal by which a child stops compiling; None: this system has none, and children are killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildStart:
    """What a child is told before its first grammar.

    Attributes:
        resolved: the choice of components.
        vocabulary: of the model.
        memory_bytes: how much more memory than before it one grammar may take.
    """

    resolved: Resolved
    vocabulary: GrammarVocabulary
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """The answer about a grammar that was compiled, and opened on trial.

    Attributes:
        portable: what ``Grammar.open`` takes.
        open_s: how long opening took.
        size_bytes: memory that it holds then.
    """

    portable: bytes
    open_s: float
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The answer about a grammar that was not.

    Attributes:
        message, hint: for the request.
        is_fault: the grammar is to blame; otherwise the component broke.
        is_limit: it passed a limit, which it may keep another time.
        detail: what the component's own parts said of it; for the log.
    """

    message: str
    hint: str = ""
    is_fault: bool = True
    is_limit: bool = False
    detail: str = ""


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The answer about a grammar that the parent wanted no more, or later."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a grammar, and whether the child ends with it."""

    outcome: Compiled | Refused | GaveUp
    is_last: bool


def write_frame(stream: IO[bytes], value: object) -> None:
    """Send one value."""
    data = pickle.dumps(value)
    stream.write(_LENGTH.pack(len(data)))
    stream.write(data)
    stream.flush()


def read_frame(stream: IO[bytes]) -> Any:
    """Receive one value.

    Raises:
        EOFError: the other side has gone.
    """
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (size,) = _LENGTH.unpack(head)
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return pickle.loads(data)


def warm_up(component: Grammar, vocabulary: GrammarVocabulary) -> None:
    """Have a component import what it needs, and prepare the vocabulary.

    Args:
        component: just loaded.
        vocabulary: of the model.
    """
    if "choice" in component.kinds:
        with contextlib.suppress(RequestError):  # a vocabulary without "a"
            compiled = component.compile(GrammarText(kind="choice", text='["a"]'), vocabulary)
            component.open(compiled, vocabulary)


class _ToldToGiveUp(BaseException):
    """The parent's signal; no ``Exception``, which a component might catch."""


class _Compiler:
    """Compiles one grammar after the other; the parent's signal ends the present one only."""

    def __init__(self, component: Grammar, vocabulary: GrammarVocabulary) -> None:
        self._component = component
        self._vocabulary = vocabulary
        self._is_compiling = False
        if GIVE_UP is not None:
            signal.signal(GIVE_UP, self._told)

    def _told(self, *_: object) -> None:
        if self._is_compiling:
            self._is_compiling = False
            raise _ToldToGiveUp

    def outcome(self, grammar: GrammarText) -> Compiled | Refused | GaveUp:
        """What becomes of a grammar."""
        try:
            self._is_compiling = True
            found = self._compiled(grammar)
            self._is_compiling = False
        except _ToldToGiveUp:
            return GaveUp()
        finally:
            self._is_compiling = False
        return found

    def _compiled(self, grammar: GrammarText) -> Compiled | Refused:
        try:
            portable = self._component.compile(grammar, self._vocabulary)
            began_s = time.monotonic()
            opened = self._component.open(portable, self._vocabulary)
            open_s = time.monotonic() - began_s
            return Compiled(portable=portable, open_s=open_s, size_bytes=opened.size_bytes)
        except _ToldToGiveUp:
            raise
        except RequestError as error:
            return Refused(error.message, error.hint, detail=foreign_detail(error))
        except MemoryError:
            return Refused(
                "compiling the grammar takes too much memory",
                "make it smaller, or raise grammar.memory_bytes",
                is_limit=True,
            )
        except BaseException as error:  # noqa: BLE001 - components are foreign code
            return Refused(f"the grammar component failed: {describe(error)}", is_fault=False)


def foreign_detail(error: DeepInferError) -> str:
    """The beginning of what lies behind an error, if that is foreign; for the log."""
    cause = error.__cause__
    if cause is None or isinstance(cause, DeepInferError):
        return ""
    return describe(cause)[:_LONGEST_DETAIL]


def _memory_bytes() -> int:
    """Memory of this process; 0 where the system does not say."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[5]) * resource.getpagesize()
    return 0


def _limit_memory(most_bytes: int) -> None:
    """Let the process take so much memory, where the system can see to it."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, hard))


def _serve(compiler: _Compiler, memory_bytes: int, requests: IO[bytes], out: IO[bytes]) -> None:
    first_bytes = now_bytes = _memory_bytes()
    is_last = False
    while not is_last:
        try:
            grammar = read_frame(requests)
        except EOFError:
            break
        if now_bytes:
            _limit_memory(now_bytes + memory_bytes)
        outcome = compiler.outcome(grammar)
        now_bytes = _memory_bytes()
        is_last = now_bytes - first_bytes > memory_bytes
        write_frame(out, Answer(outcome, is_last))


def main() -> None:
    """Serve until the parent closes standard input."""
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what foreign code prints is no answer
    with contextlib.suppress(OSError, AttributeError):
        os.nice(_NICENESS)
    sys.path[:] = read_frame(requests)
    start: ChildStart = read_frame(requests)
    try:
        component: Grammar = load(start.resolved, "grammar")
        warm_up(component, start.vocabulary)
    except DeepInferError as error:
        write_frame(answers, Refused(error.message, error.hint, is_fault=False))
        return
    compiler = _Compiler(component, start.vocabulary)
    write_frame(answers, None)
    _serve(compiler, start.memory_bytes, requests, answers)
    # Threads or exit handlers of foreign code must not keep a process alive that nobody wants.
    os._exit(0)


if __name__ == "__main__":
    # Pickled classes name the module, not the program.
    import_module("deepinfer_core.engine.grammar_child").main()
