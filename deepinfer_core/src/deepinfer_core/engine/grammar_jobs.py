"""What is known of a grammar that is being compiled, and of those who wait for it?"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field

from deepinfer_core.engine.grammar_turns import JobView, turns_had
from deepinfer_core.interfaces.grammar import CompiledGrammar, GrammarText

__all__ = ["GrammarJob", "Ticket"]


@dataclass(slots=True, eq=False)
class Ticket:
    """One who waits for a grammar.

    Attributes:
        future: where it comes.
        caller: on whose behalf.
        asked_s: since when, on the monotonic clock.
        deadline_s: until when.
    """

    future: Future[CompiledGrammar]
    caller: str
    asked_s: float
    deadline_s: float


@dataclass(slots=True, eq=False)
class GrammarJob:
    """A grammar that somebody waits for.

    Attributes:
        number: in the order in which they came.
        grammar: what is compiled.
        turns: that it had, see ``grammar_turns``.
        tickets: who waits for it.
        since_s: when its present turn began; None: it waits.
        told_s: when it was told to give way.
        ran_s: length of the turns before this one.
        is_opening: it was compiled, and is made usable.
        idle_deaths: processes that had ended when they were to begin it.
    """

    number: int
    grammar: GrammarText
    turns: int
    tickets: list[Ticket] = field(default_factory=list)
    since_s: float | None = None
    told_s: float | None = None
    ran_s: float = 0.0
    is_opening: bool = False
    idle_deaths: int = 0

    def view(self) -> JobView:
        """What the policy sees."""
        return JobView(
            number=self.number,
            callers=tuple(ticket.caller for ticket in self.tickets),
            turns=self.turns,
            since_s=self.since_s,
            is_stopping=self.told_s is not None or self.is_opening,
        )

    def end_turn(self, now_s: float) -> None:
        """Its turn is over, and it is not done."""
        assert self.since_s is not None
        self.turns = turns_had(self.view(), now_s)
        self.ran_s += now_s - self.since_s
        self.since_s = self.told_s = None

    def spent_s(self, now_s: float) -> float:
        """For how long it was compiled so far."""
        return self.ran_s + (0.0 if self.since_s is None else now_s - self.since_s)
