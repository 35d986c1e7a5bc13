"""What is judged by mutations: one program, or a whole kernel file with all its specs?

``ProgramSubject`` changes one PrimFunc. ``FileSubject`` changes the file that builds it, and runs
the cases of every spec, as an author's mistake would meet them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from deepinfer_core.testing.tiles.equivalence import is_equivalent
from deepinfer_core.testing.tiles.faults import TileFault
from deepinfer_core.testing.tiles.mutations import Mutant, mutants
from deepinfer_core.testing.tiles.program import Program
from deepinfer_core.testing.tiles.source_mutations import (
    SourceMutant,
    load_mutant,
    source_mutants,
)
from deepinfer_core.testing.tiles.survey import Verdict

__all__ = ["FileSubject", "ProgramSubject", "Translated", "complaint", "translated"]

Check = Callable[[Program], list[str]]
"""Runs a program on inputs and returns what is wrong with the results."""
Translated = Callable[[], Program]
"""Gives a program, translated when it is first asked for."""

STILLBORN = "the tile language refuses it"
SAME = "the simplifier makes the same program of it"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSubject:
    """One PrimFunc and its cases.

    Attributes:
        name: for the outcomes.
        func: the PrimFunc without a mistake.
        check: its cases; may raise any fault of the interpreter.
    """

    name: str
    func: Any
    check: Check

    def mutants(self, seed: int) -> Iterator[Mutant]:
        """Mutants of the program."""
        return mutants(self.func, seed)

    def notice(self, mutant: Mutant) -> tuple[Verdict, str]:
        """Run one mutant on the cases."""
        reason = complaint(translated(mutant.func), self.check)
        if reason:
            return "caught", reason
        if is_equivalent(self.func, mutant.func):
            return "equivalent", SAME
        return "survived", "no case noticed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSubject:
    """A kernel's file and the cases of all its specs.

    Attributes:
        name: for the outcomes.
        path: the file.
        package: the package that it belongs to.
        make: from a module (as it is, or changed) and a case's key to that case's PrimFunc.
        original: the module as it is.
        checks: the cases by key, the quick ones first; keys of one spec are equal where they can
            share a PrimFunc.
        folder: where changed files are written.
    """

    name: str
    path: Path
    package: str
    make: Callable[[Any, Any], Any]
    original: Any
    checks: Sequence[tuple[Any, Check]]
    folder: Path

    def mutants(self, seed: int) -> Iterator[SourceMutant]:
        """Mutants of the file."""
        return source_mutants(self.path, seed)

    def notice(self, mutant: SourceMutant) -> tuple[Verdict, str]:
        """Build every spec from the changed file and run its cases."""
        built: dict[Any, tuple[Any, Translated]] = {}
        try:
            module = load_mutant(mutant, self.package, self.folder)
        except Exception as error:  # noqa: BLE001 - whatever a changed file raises
            return "stillborn", f"{STILLBORN}: {type(error).__name__}"
        for key, check in self.checks:
            if key not in built:
                try:
                    func = self.make(module, key)
                except Exception as error:  # noqa: BLE001 - the frontend raises many kinds
                    return "stillborn", f"{STILLBORN}: {type(error).__name__}"
                built[key] = func, translated(func)
            reason = complaint(built[key][1], check)
            if reason:
                return "caught", reason
        same = all(
            is_equivalent(self.make(self.original, key), func) for key, (func, _) in built.items()
        )
        return ("equivalent", SAME) if same else ("survived", "no case noticed")


def translated(func: Any) -> Translated:
    """A PrimFunc's program, for any number of cases."""
    return cache(partial(Program, func))


def complaint(program: Translated, check: Check) -> str:
    """What notices a program: a fault, a crash or a wrong result; empty when nothing does."""
    try:
        found = check(program())
    except TileFault as fault:
        return type(fault).__name__
    except Exception as error:  # noqa: BLE001 - a crash is noticed, whatever its kind
        return f"crash: {type(error).__name__}: {error}"[:120]
    return found[0][:120] if found else ""
