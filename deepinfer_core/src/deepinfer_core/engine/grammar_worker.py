"""How is one grammar after the other handed to a child process, which may be lost at any time?

A thread waits for the child, so that nobody else has to. It says what happened to its pool, which
decides what is done next.
"""

from __future__ import annotations

import queue
import threading
from typing import Literal, Protocol

from deepinfer_core.engine.grammar_child import ChildStart, Compiled, GaveUp, Refused
from deepinfer_core.engine.grammar_jobs import GrammarJob
from deepinfer_core.engine.grammar_process import GrammarProcess
from deepinfer_core.errors import EngineError

__all__ = ["Employer", "GrammarWorker", "Outcome"]

MOST_IDLE_DEATHS = 3
"""So many processes may end by themselves before they begin a grammar: something ends them all."""

Outcome = Compiled | Refused | GaveUp | None
"""What became of a grammar; None: its process was lost."""


class Employer(Protocol):
    """Whom a worker tells, from its own thread."""

    def ready(self, worker: GrammarWorker) -> None:
        """It may be given a grammar."""

    def not_ready(self, worker: GrammarWorker, error: EngineError) -> None:
        """Its process could not be started."""

    def answered(self, worker: GrammarWorker, job: GrammarJob, outcome: Outcome) -> None:
        """So much became of a grammar; may take as long as opening it does."""


class GrammarWorker:
    """A thread and its child, which is started when it is first asked for and replaced when lost.

    Args:
        start: what each child is told.
        employer: told what happens.

    Attributes:
        state: kept by the employer, but for ``starting``.
        job: what it has been given.
    """

    def __init__(self, start: ChildStart, employer: Employer) -> None:
        self._start = start
        self._employer = employer
        self._tasks: queue.Queue[GrammarJob | Literal["start", "end"]] = queue.Queue()
        self._child: GrammarProcess | None = None
        self._has_ended = self._is_struck = False
        self.state: Literal["cold", "starting", "free", "busy"] = "cold"
        self.job: GrammarJob | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="deepinfer-grammar")
        self._thread.start()

    def begin(self) -> None:
        """Start the child; ``ready`` or ``not_ready`` will be called."""
        self.state = "starting"
        self._tasks.put("start")

    def give(self, job: GrammarJob) -> None:
        """Compile a grammar; it must be free."""
        self.state, self.job = "busy", job
        self._tasks.put(job)

    def stop(self) -> None:
        """Have the present grammar given up soon, if that is possible."""
        if (child := self._child) is not None and not child.give_up():
            self.strike()

    def strike(self) -> None:
        """End the child and with it what it does, without waiting for it."""
        if (child := self._child) is not None:
            self._is_struck = True
            child.strike()

    def end(self) -> None:
        """Let the thread end soon, whatever its child does."""
        self._has_ended = True
        self._tasks.put("end")
        self.strike()

    def join(self) -> None:
        """Wait for the thread."""
        self._thread.join()

    def _run(self) -> None:
        while (task := self._tasks.get()) != "end":
            if task != "start":
                self._employer.answered(self, task, self._asked(task))
            if self._is_struck:  # perhaps when its answer was on its way: the next is not to blame
                self._lose()
            if self._has_ended:
                break
            if self._child is not None or self._began():
                self._employer.ready(self)
        self._lose()

    def _began(self) -> bool:
        """Start a child."""
        try:
            self._child = GrammarProcess()
            if self._has_ended:  # whoever ended it may have looked for a child before this
                raise EOFError
            self._child.begin(self._start)
        except EngineError as error:
            failure = error
        except (OSError, EOFError, queue.Empty) as error:
            failure = EngineError(
                f"no process that compiles grammars could be started: {type(error).__name__}",
                hint="see whether there is memory for one, or lower grammar.workers",
            )
            failure.__cause__ = error
        else:
            return True
        self._lose()
        self._employer.not_ready(self, failure)
        return False

    def _asked(self, job: GrammarJob) -> Outcome:
        assert self._child is not None
        if not self._child.is_alive:  # ended by others while it waited: the grammar's turn is over
            self._lose()
            job.idle_deaths += 1
            return GaveUp() if job.idle_deaths < MOST_IDLE_DEATHS else _dying()
        try:
            answer = self._child.ask(job.grammar)
        except (OSError, EOFError):
            fault = self._child.crash()
            self._lose()
            return _crashed(fault) if fault else None
        if answer.is_last:
            self._lose()
        return answer.outcome

    def _lose(self) -> None:
        child, self._child, self._is_struck = self._child, None, False
        if child is not None:
            child.kill()


def _crashed(fault: str) -> Refused:
    return Refused(
        f"compiling the grammar ended its process by {fault}, which is a defect of the component or"
        " a grammar that is nested too deeply for it",
        hint="make it smaller or less deep",
        is_limit=True,
    )


def _dying() -> Refused:
    return Refused(
        f"{MOST_IDLE_DEATHS} processes that compile grammars were ended from outside, one after"
        " the other, before they began this one",
        hint="see what ends them: a limit on the memory or the number of processes, or a cleaner",
        is_fault=False,
    )
