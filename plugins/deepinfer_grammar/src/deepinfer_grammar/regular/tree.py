"""What does a regular expression consist of?

Every node is a frozen value, so that equal parts are equal objects in tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from deepinfer_grammar.regular.charset import CharSet

if TYPE_CHECKING:
    from deepinfer_grammar.regular.dfa import Dfa

__all__ = [
    "MAX_PARTS",
    "Alternation",
    "Assertion",
    "Chars",
    "Concatenation",
    "Language",
    "Look",
    "Place",
    "Regex",
    "Repetition",
    "Sizes",
    "literal",
]

MAX_PARTS = 60000
"""Most states of an automaton before determinisation, repetitions written out."""

Place = Literal[
    "start", "end", "line_start", "line_end",
    "boundary", "no_boundary", "sure_boundary", "sure_no_boundary",
]  # fmt: skip
"""Where an assertion of no width holds."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set."""

    chars: CharSet


@dataclass(frozen=True, slots=True)
class Concatenation:
    """Parts one after the other; none is the empty text."""

    parts: tuple[Regex, ...]


@dataclass(frozen=True, slots=True)
class Alternation:
    """One of the parts; none is no text at all."""

    parts: tuple[Regex, ...]


@dataclass(frozen=True, slots=True)
class Repetition:
    """``low`` to ``high`` times the part; None has no upper bound."""

    part: Regex
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Assertion:
    """Holds at some places, takes no character."""

    place: Place


@dataclass(frozen=True, slots=True)
class Look:
    """Text ahead (or behind) must, or must not, match the part; takes no character."""

    part: Regex
    is_ahead: bool
    is_negative: bool
    position: int


@dataclass(frozen=True, slots=True)
class Language:
    """Any text of an automaton."""

    dfa: Dfa


Regex = Chars | Concatenation | Alternation | Repetition | Assertion | Look | Language


def literal(text: str) -> Concatenation:
    """Exactly this text."""
    return Concatenation(tuple(Chars(((ord(letter), ord(letter)),)) for letter in text))


class Sizes:
    """States that expressions become before determinisation, counted and not written out.

    An expression is counted once, however often it is asked for, and lives as long as this does.
    Look-around is made apart; here it counts as what stands in it.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Regex, int]] = {}

    def of(self, regex: Regex) -> int:
        """So many states, beside the first one."""
        known = self._known.get(id(regex))
        if known is None:
            known = self._known[id(regex)] = regex, self._count(regex)
        return known[1]

    def _count(self, regex: Regex) -> int:
        match regex:
            case Concatenation(parts):
                return sum(map(self.of, parts))
            case Alternation(parts):
                return 1 + sum(1 + self.of(part) for part in parts)
            case Repetition(part, low, None):
                return (low + 1) * self.of(part) + 2
            case Repetition(part, low, high):
                return max(low, high or 0) * self.of(part) + 1
            case Look(part):
                return self.of(part)
            case Language(dfa):
                return len(dfa.edges) + 1
        return 1
