"""Who waits for which grammar, until when, and what is told to whom?

Nothing here has a thread or a lock: whoever calls holds one. Each grammar is one job, however many
wait for it; a job without anybody is given up.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from itertools import count

from deepinfer_core.engine.grammar_jobs import GrammarJob, Ticket
from deepinfer_core.engine.grammar_limits import GrammarMeter, PoolLimits
from deepinfer_core.engine.grammar_memory import GrammarMemory
from deepinfer_core.engine.grammar_outcomes import Failed, Usable, give, late, no_room
from deepinfer_core.engine.grammar_turns import makes_room, turns_had
from deepinfer_core.errors import UnsupportedGrammar
from deepinfer_core.interfaces.grammar import CompiledGrammar, GrammarText

__all__ = ["GrammarQueue"]


class GrammarQueue:
    """Jobs, and those who wait for them.

    Args:
        limits: what compiling may take.
        meter: told what is done.
        stop: has a job given up that is being compiled.
    """

    def __init__(
        self, limits: PoolLimits, meter: GrammarMeter, stop: Callable[[GrammarJob, float], None]
    ) -> None:
        self._limits = limits
        self._meter = meter
        self._stop = stop
        self._memory = GrammarMemory(limits.cache_bytes)
        self._jobs: dict[GrammarText, GrammarJob] = {}
        self._numbers = count(1)

    @property
    def kept_bytes(self) -> int:
        """Memory of the grammars that are kept."""
        return self._memory.kept_bytes

    @property
    def jobs(self) -> list[GrammarJob]:
        """All that somebody waits for, and what is being opened; oldest first."""
        return list(self._jobs.values())

    @property
    def waiting(self) -> list[GrammarJob]:
        """Those that are not being compiled."""
        return [job for job in self._jobs.values() if job.since_s is None]

    def ask(self, grammar: GrammarText, caller: str, now_s: float) -> Future[CompiledGrammar]:
        """A grammar, now or later."""
        future: Future[CompiledGrammar] = Future()
        found = self._memory.compiled(grammar) or self._memory.failure(grammar, now_s)
        self._meter.grammar_asked(is_known=found is not None)
        if found is not None:
            give(future, found)
        else:
            ticket = Ticket(future, caller, now_s, now_s + self._limits.timeout_s)
            self._join(grammar, ticket, now_s)
        return future

    def let_go(self, grammar: GrammarText, future: Future[CompiledGrammar], now_s: float) -> None:
        """Somebody wants a grammar no more."""
        job = self._jobs.get(grammar)
        if job is not None:
            job.tickets = [one for one in job.tickets if one.future is not future]
            self._drop_unwanted(job, now_s)

    def stood_still(self, since_s: float, now_s: float) -> None:
        """There was no process to compile anything, which counts towards nobody's limit."""
        for job in self._jobs.values():
            for ticket in job.tickets:
                ticket.deadline_s += now_s - max(since_s, ticket.asked_s)

    def expire(self, job: GrammarJob, now_s: float, *, more_s: float = 0.0) -> None:
        """Tell those whose limit has passed, or will before their grammar is usable.

        Args:
            job: for which they wait.
            now_s: on the clock of all times.
            more_s: how long opening will take, once it was compiled.
        """
        due = [one for one in job.tickets if one.deadline_s <= now_s + more_s]
        if not due:
            return
        job.tickets = [one for one in job.tickets if one not in due]
        for ticket in due:
            failed = late(job.spent_s(now_s), self._limits.timeout_s, more_s=more_s)
            self._remember(job, failed, now_s)
            give(ticket.future, failed.error)
        self._drop_unwanted(job, now_s)

    def finish(self, job: GrammarJob, outcome: Usable | Failed, now_s: float) -> None:
        """Give a grammar, or why there is none, to whoever waits for it, and remember it."""
        if self._jobs.get(job.grammar) is job:
            del self._jobs[job.grammar]
        if job.since_s is not None:
            self._meter.grammar_compiled(job.spent_s(now_s))
        self._remember(job, outcome, now_s)
        tickets, job.tickets = job.tickets, []
        for ticket in tickets:
            give(ticket.future, outcome.error if isinstance(outcome, Failed) else outcome.compiled)

    def leave(self, job: GrammarJob) -> None:
        """Forget a job that was to be opened, and that nobody waits for."""
        del self._jobs[job.grammar]

    def _join(self, grammar: GrammarText, ticket: Ticket, now_s: float) -> None:
        job = self._jobs.get(grammar)
        if job is None:
            if not self._has_room(ticket.caller, now_s):
                give(ticket.future, no_room(self._limits).error)
                return
            turns = self._memory.turns(grammar)
            job = self._jobs[grammar] = GrammarJob(next(self._numbers), grammar, turns)
        job.tickets.append(ticket)

    def _has_room(self, caller: str, now_s: float) -> bool:
        """Whether one more may wait, perhaps in place of another."""
        waiting = self.waiting
        if len(waiting) < self._limits.max_waiting:
            return True
        number = makes_room([job.view() for job in waiting], caller)
        for job in waiting:
            if job.number == number:
                self.finish(job, no_room(self._limits), now_s)
        return number is not None

    def _drop_unwanted(self, job: GrammarJob, now_s: float) -> None:
        """Nobody may want it any more. What is being opened cannot be stopped, and is kept."""
        if job.tickets or job.is_opening:
            return
        del self._jobs[job.grammar]
        if (turns := turns_had(job.view(), now_s)) > 0:
            self._memory.slow(job.grammar, turns)
        if job.since_s is not None:
            self._meter.grammar_compiled(job.spent_s(now_s))
            self._stop(job, now_s)

    def _remember(self, job: GrammarJob, outcome: Usable | Failed, now_s: float) -> None:
        if isinstance(outcome, Usable):
            size_bytes = outcome.size_bytes + len(job.grammar.text)
            self._memory.keep(job.grammar, outcome.compiled, size_bytes)
        elif outcome.kept_s and isinstance(outcome.error, UnsupportedGrammar):
            self._memory.fail(job.grammar, outcome.error, now_s + outcome.kept_s)
