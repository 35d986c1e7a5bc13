"""Program: which rules does this grammar stand for? Runs where it may be killed.

Reads one ``ChildStart`` and then grammars from standard input, pickled behind their lengths, and
answers each on a private copy of standard output. Its parent ends it when it takes too long. How
much memory one grammar may take it is told; when as much has stayed behind, it ends with an answer.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import IO, Any

from deepinfer_core.errors import DeepInferError, RequestError
from deepinfer_core.interfaces.grammar import Grammar, GrammarText, GrammarVocabulary
from deepinfer_core.plugin import Resolved, load
from deepinfer_core.plugin.resolved import describe

__all__ = ["Answer", "ChildStart", "Compiled", "Refused", "read_frame", "write_frame"]

_LENGTH = struct.Struct("<Q")

_NICENESS = 10
"""Compiling must not take the cores of the step loop."""


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


@dataclass(frozen=True, slots=True)
class Compiled:
    """The answer about a grammar that was compiled."""

    portable: bytes


@dataclass(frozen=True, slots=True)
class Refused:
    """The answer about a grammar that was not.

    Attributes:
        message, hint: for the request.
        is_fault: the grammar is to blame; otherwise the component broke.
    """

    message: str
    hint: str = ""
    is_fault: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a grammar, and whether the child ends with it."""

    outcome: Compiled | Refused
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


def _outcome(
    component: Grammar, grammar: GrammarText, vocabulary: GrammarVocabulary
) -> Compiled | Refused:
    try:
        return Compiled(component.compile(grammar, vocabulary))
    except RequestError as error:
        return Refused(error.message, error.hint)
    except MemoryError:
        return Refused("the grammar takes too much memory", "make it smaller")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - components are foreign code
        return Refused(f"the grammar component failed: {describe(error)}", is_fault=False)


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


def _serve(component: Grammar, start: ChildStart, requests: IO[bytes], answers: IO[bytes]) -> None:
    first_bytes = now_bytes = _memory_bytes()
    is_last = False
    while not is_last:
        try:
            grammar = read_frame(requests)
        except EOFError:
            break
        if now_bytes:
            _limit_memory(now_bytes + start.memory_bytes)
        outcome = _outcome(component, grammar, start.vocabulary)
        now_bytes = _memory_bytes()
        is_last = now_bytes - first_bytes > start.memory_bytes
        write_frame(answers, Answer(outcome, is_last))


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
        component.compile(GrammarText(kind="choice", text='["a"]'), start.vocabulary)
    except RequestError:
        pass  # a vocabulary without "a"; the engine was imported, which is what counts
    except DeepInferError as error:
        write_frame(answers, Refused(error.message, error.hint, is_fault=False))
        return
    write_frame(answers, None)
    _serve(component, start, requests, answers)
    # Threads or exit handlers of foreign code must not keep a process alive that nobody wants.
    os._exit(0)


if __name__ == "__main__":
    # Pickled classes name the module, not the program.
    import_module("deepinfer_core.engine.grammar_child").main()
