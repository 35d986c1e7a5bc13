"""How are grammars compiled without holding up anybody?

Child processes compile, threads wait for them, and one thread decides (``grammar_turns``) who is
compiled next, who gives way, and for whom it is too late. A child that takes too much memory, dies,
or does not stop when it is told to, is replaced; the requests whose grammar it was fail alone. Each
grammar is compiled once however many ask for it at the same time, and given up when nobody wants it
any more. What became of it is remembered (``grammar_memory``).

Whoever asks gets a future of its own, and cancels it to say that it wants the grammar no more.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from concurrent.futures import Future
from functools import partial

from deepinfer_core.engine.grammar_child import ChildStart, Compiled, GaveUp, Refused, warm_up
from deepinfer_core.engine.grammar_jobs import GrammarJob
from deepinfer_core.engine.grammar_limits import GrammarMeter, PoolLimits, Unmetered
from deepinfer_core.engine.grammar_outcomes import Failed, Usable, made_usable, no_kind, refused
from deepinfer_core.engine.grammar_queue import GrammarQueue
from deepinfer_core.engine.grammar_turns import Snapshot, decide
from deepinfer_core.engine.grammar_worker import GrammarWorker, Outcome
from deepinfer_core.errors import EngineError
from deepinfer_core.interfaces.grammar import (
    CompiledGrammar,
    Grammar,
    GrammarText,
    GrammarVocabulary,
)
from deepinfer_core.plugin import Resolved, load

__all__ = ["GRACE_S", "LONG_OPENING_S", "GrammarPool"]

_TOLD_AGAIN_S = 0.05

LONG_OPENING_S = 0.25
"""What took a child longer to open is opened here one after the other, while workers go on."""

GRACE_S = 1.0
"""A child that was told to give a grammar up, and has not after this time, is killed."""


class GrammarPool:
    """Compiles grammars; may be used from several threads.

    Args:
        resolved: the choice of components; its grammar slot is filled.
        vocabulary: of the model.
        limits: what compiling may take.
        meter: told what is done.

    Attributes:
        component: what follows texts, in this process.
        vocabulary: as given.
    """

    def __init__(
        self,
        resolved: Resolved,
        vocabulary: GrammarVocabulary,
        limits: PoolLimits,
        meter: GrammarMeter | None = None,
    ) -> None:
        self.component: Grammar = load(resolved, "grammar")
        self.vocabulary = vocabulary
        self._limits = limits
        self._meter = meter or Unmetered()
        self._queue = GrammarQueue(limits, self._meter, self._stop)
        self._last_turns: dict[str, int] = {}
        self._state = threading.Condition()
        self._long_opening = threading.Lock()
        self._settled = threading.Event()
        self._is_closed = False
        self._down_since_s: float | None = time.monotonic()
        """Since when there is no process; None: there is one."""
        start = ChildStart(
            resolved=resolved, vocabulary=vocabulary, memory_bytes=limits.memory_bytes
        )
        self._workers = [GrammarWorker(start, self) for _ in range(limits.workers)]
        self._workers[0].begin()  # so that the first grammar need not wait for a process
        with contextlib.suppress(Exception):  # who asks for a grammar is told what is wrong
            warm_up(self.component, vocabulary)
        self._thread = threading.Thread(target=self._run, daemon=True, name="deepinfer-grammars")
        self._thread.start()

    def compiled(self, grammar: GrammarText, caller: str = "") -> Future[CompiledGrammar]:
        """A grammar, now or later; whoever wants it no more cancels the future.

        The future fails with ``UnsupportedGrammar`` if the grammar is to blame, with ``EngineBusy``
        if it had to wait too long or there is no room for it, else with an ``EngineError``.

        Args:
            grammar: what is asked for.
            caller: on whose behalf; callers take turns.

        Raises:
            UnsupportedGrammar: the component takes no grammars of this kind.
            EngineError: the pool was closed.
        """
        if grammar.kind not in self.component.kinds:
            raise no_kind(grammar.kind, self.component.kinds)
        with self._state:
            if self._is_closed:
                raise EngineError("grammars are no longer compiled: the engine was closed")
            future = self._queue.ask(grammar, caller, time.monotonic())
            self._state.notify_all()
        future.add_done_callback(partial(self._let_go, grammar))
        return future

    @property
    def kept_bytes(self) -> int:
        """Memory of the grammars that are kept; sequences hold those that they follow besides."""
        return self._queue.kept_bytes

    def wait(self, timeout_s: float) -> None:
        """Wait until some grammar was settled since the last wait, but not for ever."""
        self._settled.wait(timeout_s)
        self._settled.clear()

    def close(self) -> None:
        """End all children; what was not compiled fails. May be called again."""
        self._fail_all()
        for worker in self._workers:
            worker.end()
        for worker in self._workers:
            worker.join()
        self._thread.join()

    def ready(self, worker: GrammarWorker) -> None:
        """See ``Employer``."""
        with self._state:
            worker.state = "free"
            if self._down_since_s is not None:
                self._queue.stood_still(self._down_since_s, time.monotonic())
                self._down_since_s = None
            self._state.notify_all()

    def not_ready(self, worker: GrammarWorker, error: EngineError) -> None:
        """See ``Employer``; whoever waits would fail the same way."""
        with self._state:
            worker.state = "cold"
            for job in self._queue.waiting:
                self._finish(job, Failed(error))

    def answered(self, worker: GrammarWorker, job: GrammarJob, outcome: Outcome) -> None:
        """See ``Employer``."""
        with self._state:
            if outcome is None:
                worker.state = "starting"  # another process
            was_killed = outcome is None and job.told_s is not None
            # It may have been done before it could be told that nobody wants it any more.
            if isinstance(outcome, GaveUp) or was_killed or not job.tickets:
                job.end_turn(time.monotonic())
                worker.job = None
                self._state.notify_all()
                return
            job.is_opening = isinstance(outcome, Compiled)
        self._take(job, outcome)
        with self._state:
            worker.job = None
            self._state.notify_all()

    def _take(self, job: GrammarJob, outcome: Compiled | Refused | None) -> None:
        """Make use of what a child answered."""
        if not isinstance(outcome, Compiled):
            self._finish(job, refused(outcome))
        elif outcome.open_s <= LONG_OPENING_S:
            self._finish(job, made_usable(self.component, outcome, self.vocabulary, self._limits))
        else:
            threading.Thread(
                target=self._open_long, args=(job, outcome), daemon=True, name="deepinfer-grammar"
            ).start()

    def _open_long(self, job: GrammarJob, compiled: Compiled) -> None:
        """Open what takes long, if it will be in time for somebody.

        One at a time, since opening takes a core that the step loop may want.
        """
        with self._long_opening:
            with self._state:
                self._queue.expire(job, time.monotonic(), more_s=compiled.open_s)
                if not job.tickets:
                    self._queue.leave(job)
                    self._settled.set()
                    return
            opened = made_usable(self.component, compiled, self.vocabulary, self._limits)
            self._finish(job, opened)

    def _finish(self, job: GrammarJob, outcome: Usable | Failed) -> None:
        with self._state:
            self._queue.finish(job, outcome, time.monotonic())
            self._state.notify_all()
        self._settled.set()

    def _let_go(self, grammar: GrammarText, future: Future[CompiledGrammar]) -> None:
        if future.cancelled():
            with self._state:
                self._queue.let_go(grammar, future, time.monotonic())
                self._state.notify_all()

    def _stop(self, job: GrammarJob, now_s: float) -> None:
        if job.told_s is None:
            job.told_s = now_s
            next(one for one in self._workers if one.job is job).stop()

    def _fail_all(self) -> None:
        with self._state:
            self._is_closed = True
            for job in self._queue.jobs:
                self._finish(job, Failed(EngineError("the engine was closed")))
            self._state.notify_all()

    def _run(self) -> None:
        try:
            with self._state:
                while not self._is_closed:
                    wake_s = self._turn(time.monotonic())
                    wait_s = None if wake_s == math.inf else max(0.0, wake_s - time.monotonic())
                    self._state.wait(wait_s)
        finally:
            self._fail_all()  # without this thread they would wait for ever

    def _turn(self, now_s: float) -> float:
        """Do what is due; when to look again if nothing happens."""
        self._expire(now_s)
        self._insist(now_s)
        self._begin_workers()
        again_s = self._share_out(now_s)
        jobs = [worker.job for worker in self._workers if worker.job is not None]
        self._meter.grammars_now(waiting=len(self._queue.waiting), compiling=len(jobs))
        if any(job.told_s is not None and not job.is_opening for job in jobs):
            again_s = min(again_s, now_s + _TOLD_AGAIN_S)
        if self._down_since_s is not None:
            return again_s
        limits = [ticket.deadline_s for job in self._queue.jobs for ticket in job.tickets]
        return min([again_s, *limits])

    def _expire(self, now_s: float) -> None:
        """Tell those whose limit has passed; while there is no process nobody's does."""
        if all(worker.state in ("cold", "starting") for worker in self._workers):
            self._down_since_s = self._down_since_s or now_s
            return
        for job in self._queue.jobs:
            if any(ticket.deadline_s <= now_s for ticket in job.tickets):
                self._queue.expire(job, now_s)
                self._settled.set()

    def _insist(self, now_s: float) -> None:
        """Tell children again to give up, which may not have begun then, and end deaf ones."""
        for worker in self._workers:
            job = worker.job
            if job is None or job.is_opening or job.told_s is None:
                continue
            if now_s >= job.told_s + GRACE_S:
                worker.strike()
            else:
                worker.stop()

    def _begin_workers(self) -> None:
        """Start as many more children as there is work for."""
        states = [worker.state for worker in self._workers]
        wanted = len(self._queue.waiting) - states.count("free") - states.count("starting")
        for worker in self._workers:
            if worker.state == "cold" and wanted > 0:
                worker.begin()
                wanted -= 1

    def _share_out(self, now_s: float) -> float:
        """Start and stop what the policy says; when it must be asked again."""
        jobs = {job.number: job for job in self._queue.waiting}
        # Also what was given up, as long as it has a process.
        jobs |= {one.job.number: one.job for one in self._workers if one.job is not None}
        views = [jobs[number].view() for number in sorted(jobs)]
        callers = {name for view in views for name in view.callers}
        self._last_turns = {n: turn for n, turn in self._last_turns.items() if n in callers}
        free = [worker for worker in self._workers if worker.state == "free"]
        decision = decide(
            Snapshot(
                now_s=now_s,
                jobs=views,
                free=len(free),
                # One that is being started is none yet.
                processes=sum(one.state in ("free", "busy") for one in self._workers),
                last_turns=self._last_turns,
            )
        )
        for number, worker in zip(decision.start, free, strict=False):
            job = jobs[number]
            job.since_s = now_s
            turn = 1 + max(self._last_turns.values(), default=0)
            self._last_turns |= {ticket.caller: turn for ticket in job.tickets}
            worker.give(job)
        for number in decision.stop:
            self._stop(jobs[number], now_s)
        return math.inf if decision.again_s is None else decision.again_s
