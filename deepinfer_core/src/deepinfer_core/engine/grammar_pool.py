"""How are grammars compiled without holding up anybody?

A few threads wait for as many child processes. A child that takes too long, too much memory, or
dies, is replaced; the request whose grammar it was fails alone. What was compiled is kept by
content, the latest up to a sum of sizes, and compiled once however many ask for it at the same
time.
"""

from __future__ import annotations

import queue
import threading
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass

from deepinfer_core.engine.grammar_child import ChildStart, Compiled
from deepinfer_core.engine.grammar_process import GrammarProcess
from deepinfer_core.errors import DeepInferError, EngineError, UnsupportedGrammar
from deepinfer_core.interfaces.grammar import (
    CompiledGrammar,
    Grammar,
    GrammarText,
    GrammarVocabulary,
)
from deepinfer_core.plugin import Resolved, load

__all__ = ["GrammarPool", "PoolLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """How much compiling may take.

    Attributes:
        workers: grammars compiled at once.
        timeout_s: for one grammar.
        memory_bytes: for one grammar, while it is compiled and for what comes of it.
        cache_bytes: of compiled grammars that are kept, in the memory that they hold here.
    """

    workers: int = 2
    timeout_s: float = 20.0
    memory_bytes: int = 2 << 30
    cache_bytes: int = 1 << 30


class GrammarPool:
    """Compiles grammars; safe to use from several threads.

    Args:
        resolved: the choice of components; its grammar slot is filled.
        vocabulary: of the model.
        limits: what compiling may take.

    Attributes:
        component: what follows texts, in this process.
        vocabulary: as given.
    """

    def __init__(
        self, resolved: Resolved, vocabulary: GrammarVocabulary, limits: PoolLimits
    ) -> None:
        self.component: Grammar = load(resolved, "grammar")
        self.vocabulary = vocabulary
        self._limits = limits
        self._start = ChildStart(
            resolved=resolved, vocabulary=vocabulary, memory_bytes=limits.memory_bytes
        )
        self._tasks: queue.Queue[tuple[GrammarText, Future[CompiledGrammar]] | None] = queue.Queue()
        self._guard = threading.Lock()
        self._known: OrderedDict[GrammarText, tuple[CompiledGrammar, int]] = OrderedDict()
        self._kept_bytes = 0
        self._under_way: dict[GrammarText, Future[CompiledGrammar]] = {}
        self._settled = threading.Event()
        self._closed = False
        self._workers = [_Worker(self) for _ in range(limits.workers)]

    def compiled(self, grammar: GrammarText) -> Future[CompiledGrammar]:
        """A grammar, now or later.

        It fails with an UnsupportedGrammar if the grammar is to blame, else with an EngineError.

        Raises:
            UnsupportedGrammar: the component takes no grammars of this kind.
            EngineError: the pool was closed.
        """
        if grammar.kind not in self.component.kinds:
            known = ", ".join(sorted(self.component.kinds))
            raise UnsupportedGrammar(
                f"asked for a grammar of kind {grammar.kind!r}, found a component without it",
                hint=f"it takes: {known}",
            )
        with self._guard:
            if self._closed:
                raise EngineError("grammars are no longer compiled: the engine was closed")
            if grammar in self._known:
                self._known.move_to_end(grammar)
                done: Future[CompiledGrammar] = Future()
                done.set_result(self._known[grammar][0])
                return done
            if grammar not in self._under_way:
                self._under_way[grammar] = Future()
                self._tasks.put((grammar, self._under_way[grammar]))
            return self._under_way[grammar]

    @property
    def kept_bytes(self) -> int:
        """Memory of the grammars that are kept; sequences hold those that they follow besides."""
        return self._kept_bytes

    def wait(self, timeout_s: float) -> None:
        """Wait until some grammar was settled since the last wait, but not for ever."""
        self._settled.wait(timeout_s)
        self._settled.clear()

    def close(self) -> None:
        """End all children; what was not compiled fails. May be called again."""
        with self._guard:
            self._closed = True
        for worker in self._workers:
            worker.end()
        for worker in self._workers:
            worker.thread.join()
        with self._guard:
            left, self._under_way = list(self._under_way.values()), {}
        for future in left:
            if not future.done():
                future.set_exception(EngineError("the engine was closed"))

    def _settle(
        self,
        grammar: GrammarText,
        future: Future[CompiledGrammar],
        answer: Compiled | DeepInferError,
    ) -> None:
        """Give a grammar to whoever waits for it."""
        outcome: CompiledGrammar | DeepInferError
        size = 0
        try:
            if isinstance(answer, Compiled):
                outcome = self.component.open(answer.portable, self.vocabulary)
                size = outcome.size_bytes + len(grammar.text)
                if size > self._limits.memory_bytes:
                    outcome = _too_large(size, self._limits)
            else:
                outcome = answer
        except Exception as error:  # noqa: BLE001 - components are foreign code
            outcome = error if isinstance(error, DeepInferError) else EngineError(str(error))
        with self._guard:
            self._under_way.pop(grammar, None)
            if isinstance(outcome, CompiledGrammar):
                self._keep(grammar, outcome, size)
        if isinstance(outcome, CompiledGrammar):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)
        self._settled.set()

    def _keep(self, grammar: GrammarText, compiled: CompiledGrammar, size: int) -> None:
        """Keep a grammar in place of those that were asked for longest ago."""
        if size > self._limits.cache_bytes:
            return
        self._known[grammar] = (compiled, size)
        self._kept_bytes += size
        while self._kept_bytes > self._limits.cache_bytes:
            _, (_, freed) = self._known.popitem(last=False)
            self._kept_bytes -= freed


class _Worker:
    """A thread that feeds one child after the other."""

    def __init__(self, pool: GrammarPool) -> None:
        self._pool = pool
        self._child: GrammarProcess | None = None
        self._ended = False
        self.thread = threading.Thread(target=self._run, daemon=True, name="deepinfer-grammar")
        self.thread.start()

    def end(self) -> None:
        """Let the thread end soon, whatever its child does."""
        self._ended = True
        self._pool._tasks.put(None)
        if (child := self._child) is not None:
            child.kill()

    def _run(self) -> None:
        while not self._ended:
            task = self._pool._tasks.get()
            if task is None:
                break
            grammar, future = task
            answer = self._asked(grammar)
            self._pool._settle(grammar, future, answer)
        if self._child is not None:
            self._child.kill()

    def _asked(self, grammar: GrammarText) -> Compiled | DeepInferError:
        limits = self._pool._limits
        try:
            if self._child is None:
                self._child = GrammarProcess(self._pool._start)
            answer = self._child.ask(grammar, limits.timeout_s)
        except (OSError, EOFError, queue.Empty) as error:
            child, self._child = self._child, None
            if child is not None:
                child.kill()
            return _lost(error, limits)
        except EngineError as error:
            return error
        if answer.is_last:
            self._child.kill()
            self._child = None
        outcome = answer.outcome
        if isinstance(outcome, Compiled):
            return outcome
        kind = UnsupportedGrammar if outcome.is_fault else EngineError
        return kind(outcome.message, hint=outcome.hint)


def _too_large(size: int, limits: PoolLimits) -> DeepInferError:
    """What to say of a grammar of such a size."""
    return UnsupportedGrammar(
        f"the compiled grammar takes {size} bytes, over {limits.memory_bytes}",
        hint="make it smaller, or raise grammar.memory_bytes",
    )


def _lost(error: Exception, limits: PoolLimits) -> DeepInferError:
    """Why a child gave no answer."""
    if isinstance(error, queue.Empty):
        return UnsupportedGrammar(
            f"the grammar was not compiled within {limits.timeout_s:g} s",
            hint="make it smaller, or raise grammar.timeout_s",
        )
    return UnsupportedGrammar(
        "compiling the grammar ended its process, most likely for lack of memory",
        hint="make it smaller, or raise grammar.memory_bytes",
    )
