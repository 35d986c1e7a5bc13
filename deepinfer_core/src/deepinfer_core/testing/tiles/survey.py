"""How many of an author's possible mistakes do the cases of the kernels notice?

A mutant is caught when interpreting it on the kernel's cases raises, runs out of time or gives
other results than the twin allows. It survives otherwise, unless it is equivalent by the one rule
of ``equivalence.is_equivalent``; equivalent mutants are counted apart and leave the share.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from deepinfer_core.testing.tiles.equivalence import is_equivalent
from deepinfer_core.testing.tiles.faults import TileFault
from deepinfer_core.testing.tiles.mutations import Mutant, mutants
from deepinfer_core.testing.tiles.program import Program

__all__ = ["Outcome", "Subject", "caught_share", "judge", "survey"]

Verdict = Literal["caught", "survived", "equivalent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A kernel and its cases.

    Attributes:
        name: for the outcome.
        func: the PrimFunc without a mistake.
        check: runs a program on the cases' inputs and returns what is wrong with the results;
            may raise any fault of the interpreter.
    """

    name: str
    func: Any
    check: Callable[[Program], list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one mutant.

    Attributes:
        subject: the kernel.
        kind: the kind of mistake.
        before: the node as it was.
        after: the node as it became.
        verdict: caught, survived or equivalent.
        reason: what noticed it.
    """

    subject: str
    kind: str
    before: str
    after: str
    verdict: Verdict
    reason: str

    def __str__(self) -> str:
        change = f"{self.before} -> {self.after}"
        return f"{self.subject}: {self.kind}: {self.verdict} ({self.reason}): {change}"


def survey(subjects: Sequence[Subject], *, seed: int, count: int) -> list[Outcome]:
    """Judge ``count`` mutants that are not equivalent, kernels taken equally often.

    Args:
        subjects: the kernels; those without any site for a mistake are left out.
        seed: decides kernels, kinds and places.
        count: how many mutants are caught or survive.

    Returns:
        All outcomes, those of equivalent mutants in addition.
    """
    generator = random.Random(seed)
    streams = {
        subject.name: mutants(subject.func, generator.getrandbits(32)) for subject in subjects
    }
    outcomes: list[Outcome] = []
    judged, left = 0, list(subjects)
    while judged < count and left:
        subject = generator.choice(left)
        mutant = next(streams[subject.name], None)
        if mutant is None:
            left.remove(subject)
            continue
        outcomes.append(judge(subject, mutant))
        judged += outcomes[-1].verdict != "equivalent"
    return outcomes


def judge(subject: Subject, mutant: Mutant) -> Outcome:
    """Run one mutant on its kernel's cases."""
    verdict, reason = notice(subject, mutant)
    return Outcome(
        subject=subject.name,
        kind=mutant.kind,
        before=mutant.before,
        after=mutant.after,
        verdict=verdict,
        reason=reason,
    )


def notice(subject: Subject, mutant: Mutant) -> tuple[Verdict, str]:
    try:
        complaints = subject.check(Program(mutant.func))
    except TileFault as fault:
        return "caught", type(fault).__name__
    if complaints:
        return "caught", complaints[0][:120]
    if is_equivalent(subject.func, mutant.func):
        return "equivalent", "the simplifier makes the same program of it"
    return "survived", "no case noticed"


def caught_share(outcomes: Sequence[Outcome]) -> float:
    """The share of caught mutants among those that are not equivalent; 0 if there are none."""
    counted = [outcome.verdict == "caught" for outcome in outcomes if counts(outcome)]
    return sum(counted) / len(counted) if counted else 0.0


def counts(outcome: Outcome) -> bool:
    return outcome.verdict != "equivalent"
