"""How many of an author's possible mistakes do the cases of the kernels notice?

A mutant is caught when running it on the kernel's cases raises, runs out of time or gives other
results than the twin allows. It survives otherwise, unless it is equivalent by the one rule of
``equivalence.is_equivalent``. Equivalent mutants, and stillborn ones that the tile language's own
frontend refuses, are counted apart and leave the share.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

__all__ = ["Outcome", "Subject", "Verdict", "caught_share", "survey"]

Verdict = Literal["caught", "survived", "equivalent", "stillborn"]


class Subject(Protocol):
    """A kernel whose cases are judged."""

    @property
    def name(self) -> str:
        """For the outcomes."""
        ...

    def mutants(self, seed: int) -> Iterator[Any]:
        """Its mutants in a random order; each has ``kind``, ``before`` and ``after``."""
        ...

    def notice(self, mutant: Any) -> tuple[Verdict, str]:
        """What becomes of one mutant, and why."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one mutant.

    Attributes:
        subject: the kernel.
        kind: the kind of mistake.
        before: the place as it was.
        after: the place as it became.
        verdict: caught, survived, equivalent or stillborn.
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
    """Judge ``count`` mutants that count, kernels taken equally often while theirs last.

    Args:
        subjects: the kernels.
        seed: decides kernels, kinds and places.
        count: how many mutants are caught or survive; fewer if there are no more.

    Returns:
        All outcomes, those that do not count included.
    """
    generator = random.Random(seed)
    streams = {one.name: one.mutants(generator.getrandbits(32)) for one in subjects}
    outcomes: list[Outcome] = []
    judged, left = 0, list(subjects)
    while judged < count and left:
        subject = generator.choice(left)
        mutant = next(streams[subject.name], None)
        if mutant is None:
            left.remove(subject)
            continue
        outcomes.append(judge(subject, mutant))
        judged += counts(outcomes[-1])
    return outcomes


def judge(subject: Subject, mutant: Any) -> Outcome:
    """Run one mutant on its kernel's cases."""
    verdict, reason = subject.notice(mutant)
    return Outcome(
        subject=subject.name,
        kind=mutant.kind,
        before=mutant.before,
        after=mutant.after,
        verdict=verdict,
        reason=reason,
    )


def counts(outcome: Outcome) -> bool:
    return outcome.verdict in ("caught", "survived")


def caught_share(outcomes: Sequence[Outcome]) -> float:
    """The share of caught mutants among those that count; 0 if there are none."""
    counted = [outcome.verdict == "caught" for outcome in outcomes if counts(outcome)]
    return sum(counted) / len(counted) if counted else 0.0
