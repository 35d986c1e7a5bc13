"""Which spellings have the numbers that a schema allows?

A set of numbers is the automaton of their spellings without exponent; either all such spellings of
a number belong to it or none, so that intersection and difference of automata are those of numbers.
Only where a schema asks nothing of a number are exponents allowed.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import Self

from deepinfer_grammar.errors import TooLarge
from deepinfer_grammar.json_text import MAX_DIGITS, written_number
from deepinfer_grammar.regular.determinise import automaton
from deepinfer_grammar.regular.dfa import Dfa, Edge, difference, intersection, unite
from deepinfer_grammar.regular.syntax import parse
from deepinfer_grammar.regular.tree import Concatenation, Language, literal

__all__ = [
    "FREE",
    "INTEGER",
    "PLAIN",
    "SHORTEST",
    "at_least",
    "at_most",
    "equal_to",
    "multiples_of",
]

MAX_REMAINDERS = 5000
"""Most states of an automaton that divides."""


def _language(text: str) -> Dfa:
    return automaton(parse(text, "schema"))


FREE = _language(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
PLAIN = _language(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
INTEGER = _language(r"-?(0|[1-9][0-9]*)(\.0+)?")
SHORTEST = _language(r"0|-?[1-9][0-9]*|-?(0|[1-9][0-9]*)\.[0-9]*[1-9]")
"""Of each number without exponent one spelling."""
_POSITIVE = _language(r"(0|[1-9][0-9]*)(\.[0-9]+)?")
"""Spellings without a sign."""
_ANY_DIGIT, _POINT = ("0", "9"), (".", ".")


@cache
def at_least(bound: Decimal, *, is_strict: bool) -> Dfa:
    """Numbers from a bound on; without the bound itself if ``is_strict``."""
    if bound > 0:
        return _magnitude_from(bound, is_strict=is_strict)
    # Other ways to drop the sign round to as many digits as the context has.
    below = difference(_POSITIVE, _magnitude_from(bound.copy_negate(), is_strict=not is_strict))
    signed = automaton(Concatenation((literal("-"), Language(below))))
    above = _magnitude_from(Decimal(0), is_strict=is_strict and bound == 0)
    return unite(above, signed)


@cache
def at_most(bound: Decimal, *, is_strict: bool) -> Dfa:
    """Numbers up to a bound; without the bound itself if ``is_strict``."""
    return difference(PLAIN, at_least(bound, is_strict=not is_strict))


@cache
def equal_to(number: Decimal) -> Dfa:
    """One number."""
    return intersection(at_least(number, is_strict=False), at_most(number, is_strict=False))


def _digits(number: Decimal) -> tuple[str, str]:
    """Digits before and after the point, without zeros at the outer ends."""
    whole, _, fraction = written_number(number).partition(".")
    if len(whole) + len(fraction) > MAX_DIGITS:
        raise TooLarge(f"a number has over {MAX_DIGITS} digits")
    return whole, fraction


def _magnitude_from(bound: Decimal, *, is_strict: bool) -> Dfa:
    """Spellings without sign of numbers from ``bound`` >= 0 on; as many states as it has digits.

    A spelling is compared digit by digit: it has so many digits before the point, and so far is
    below the bound, equal to it, or above; or it is equal up to so many digits behind the point.
    """
    whole, fraction = _digits(bound)
    states = _States()
    above = states.of("above")
    point, behind = states.of("above, at the point"), states.of("above, behind the point")
    states.add(above, _ANY_DIGIT, above).add(above, _POINT, point).accept(above)
    states.add(point, _ANY_DIGIT, behind).add(behind, _ANY_DIGIT, behind).accept(behind)
    for count in range(len(whole)):
        for side in (-1, 0, 1) if count else (0,):
            here = states.of("whole", count, side)
            for digit in "0123456789":
                if digit == "0" and not count and whole != "0":
                    continue  # no number begins with 0 but those below 1
                order = side or (digit > whole[count]) - (digit < whole[count])
                states.add(here, (digit, digit), states.of("whole", count + 1, order))
    for side in (-1, 0, 1):
        here = states.of("whole", len(whole), side)
        if whole != "0" or side > 0:
            states.add(here, _ANY_DIGIT, above)
        if side > 0:
            states.add(here, _POINT, point).accept(here)
    equal = states.of("whole", len(whole), 0)
    states.add(equal, _POINT, states.of("fraction", 0))
    if not (fraction or is_strict):
        states.accept(equal)
    _compare_fraction(states, fraction, behind, is_strict=is_strict)
    return states.automaton(states.of("whole", 0, 0))


def _compare_fraction(states: _States, fraction: str, behind: int, *, is_strict: bool) -> None:
    """Digits behind the point, as long as all of the spelling is equal to the bound."""
    for count, wanted in enumerate(fraction):
        here = states.of("fraction", count)
        states.add(here, (wanted, wanted), states.of("fraction", count + 1))
        if wanted < "9":
            states.add(here, (chr(ord(wanted) + 1), "9"), behind)
    here, same = states.of("fraction", len(fraction)), states.of("only zeros")
    for one in (here, same):
        states.add(one, ("0", "0"), same).add(one, ("1", "9"), behind)
    if not is_strict:
        states.accept(same)
        if fraction:
            states.accept(here)


class _States:
    """An automaton whose states have names."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}
        self._edges: dict[int, list[Edge]] = {}
        self._ends: set[int] = set()

    def of(self, *name: object) -> int:
        """The number of a state; a new one the first time."""
        return self._numbers.setdefault(name, len(self._numbers))

    def add(self, state: int, letters: tuple[str, str], to: int) -> Self:
        """One more edge, for letters from the first to the last."""
        self._edges.setdefault(state, []).append((ord(letters[0]), ord(letters[1]), to))
        return self

    def accept(self, state: int) -> None:
        """A text may end there."""
        self._ends.add(state)

    def automaton(self, start: int) -> Dfa:
        """All of it, from a state on."""
        order = [start, *(n for n in range(len(self._numbers)) if n != start)]
        place = {number: index for index, number in enumerate(order)}
        edges = [[(a, b, place[to]) for a, b, to in self._edges.get(n, ())] for n in order]
        return Dfa(
            tuple(tuple(sorted(each)) for each in edges), tuple(n in self._ends for n in order)
        ).trimmed()


@cache
def multiples_of(step: Decimal) -> Dfa:
    """Whole multiples of a step > 0.

    States are remainders of the digits read so far, times the number of digits after the point.
    """
    whole, fraction = _digits(step)
    places, divisor = len(fraction), int(whole + fraction)
    if divisor * (places + 1) > MAX_REMAINDERS:
        raise TooLarge(f"multiples of {step} need over {MAX_REMAINDERS} states")
    return _dividing(divisor, places)


def _dividing(divisor: int, places: int) -> Dfa:
    """Spellings whose value, times ten to the ``places``, is a multiple of the divisor."""
    start, signed, point = 0, 1, 2
    number: dict[tuple[str, int, int], int] = {}

    def state(kind: str, remainder: int, place: int = 0) -> int:
        return number.setdefault((kind, remainder, place), 3 + len(number))

    firsts: list[Edge] = [(48, 48, state("zero", 0))]
    firsts += [(48 + d, 48 + d, state("whole", d % divisor)) for d in range(1, 10)]
    edges: dict[int, list[Edge]] = {
        start: [(45, 45, signed), *firsts],
        signed: firsts,
        point: [],
    }
    accepting = {}
    waiting = list(number)
    for kind, remainder, place in waiting:
        here = number[kind, remainder, place]
        left = remainder * pow(10, places - place, divisor) % divisor
        accepting[here] = left == 0 and kind != "point"
        found: list[Edge] = []
        for digit in range(10):
            if kind == "zero":
                break
            code = 48 + digit
            if kind == "whole":
                found.append((code, code, state("whole", (remainder * 10 + digit) % divisor)))
            elif place < places:
                following = (remainder * 10 + digit) % divisor
                found.append((code, code, state("part", following, place + 1)))
            elif digit == 0:
                found.append((code, code, state("part", remainder, place)))
        if kind in ("zero", "whole"):
            found.append((46, 46, state("point", remainder)))
        edges[here] = found
        waiting.extend(key for key in list(number)[len(waiting) :])
    size = 3 + len(number)
    return Dfa(
        tuple(tuple(sorted(edges.get(index, ()))) for index in range(size)),
        tuple(accepting.get(index, False) for index in range(size)),
    ).trimmed()
