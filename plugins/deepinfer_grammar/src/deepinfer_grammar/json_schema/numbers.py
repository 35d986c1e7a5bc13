"""Which spellings have the numbers that a schema allows?

A set of numbers is the automaton of their spellings without exponent; either all such spellings of
a number belong to it or none, so that intersection and difference of automata are those of numbers.
Only where a schema asks nothing of a number are exponents allowed.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cache

from deepinfer_grammar.errors import TooLarge
from deepinfer_grammar.regular.determinise import automaton
from deepinfer_grammar.regular.dfa import Dfa, Edge, difference, intersection, unite
from deepinfer_grammar.regular.syntax import parse
from deepinfer_grammar.regular.tree import Concatenation, Language, Regex, literal

__all__ = ["FREE", "INTEGER", "PLAIN", "at_least", "at_most", "equal_to", "multiples_of"]

MAX_DIGITS = 400
"""Most digits of a bound, written without exponent."""

MAX_REMAINDERS = 5000
"""Most states of an automaton that divides."""


def _language(text: str) -> Dfa:
    return automaton(parse(text, "schema"))


FREE = _language(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
PLAIN = _language(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
INTEGER = _language(r"-?(0|[1-9][0-9]*)(\.0+)?")
_POSITIVE = _language(r"(0|[1-9][0-9]*)(\.[0-9]+)?")
"""Spellings without a sign."""


@cache
def at_least(bound: Decimal, *, is_strict: bool) -> Dfa:
    """Numbers from a bound on; without the bound itself if ``is_strict``."""
    if bound > 0:
        return _magnitude_from(bound, is_strict=is_strict)
    below = difference(_POSITIVE, _magnitude_from(-bound, is_strict=not is_strict))
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
    if number and abs(number.adjusted()) > MAX_DIGITS:
        raise TooLarge(f"the number {number} has over {MAX_DIGITS} digits")
    whole, _, fraction = format(number, "f").partition(".")
    fraction = fraction.rstrip("0")
    if len(whole) + len(fraction) > MAX_DIGITS:
        raise TooLarge(f"a number has over {MAX_DIGITS} digits")
    return whole, fraction


def _magnitude_from(bound: Decimal, *, is_strict: bool) -> Dfa:
    """Spellings without sign of numbers from ``bound`` >= 0 on."""
    whole, fraction = _digits(bound)
    tail = r"(\.[0-9]+)?"
    length = len(whole)
    options = [f"[1-9][0-9]{{{length if whole != '0' else 0},}}{tail}"]
    for index, digit in enumerate(whole):
        if digit < "9" and whole != "0":
            rest = length - index - 1
            options.append(f"{whole[:index]}[{chr(ord(digit) + 1)}-9][0-9]{{{rest}}}{tail}")
    for index, digit in enumerate(fraction):
        if digit < "9":
            options.append(rf"{whole}\.{fraction[:index]}[{chr(ord(digit) + 1)}-9][0-9]*")
    options.append(rf"{whole}\.{fraction}0*[1-9][0-9]*")
    if not is_strict:
        options.append(rf"{whole}\.{fraction}0*" if fraction else rf"{whole}(\.0+)?")
    regex: Regex = parse("|".join(options), "schema")
    return automaton(regex)


@cache
def multiples_of(step: Decimal) -> Dfa:
    """Whole multiples of a step > 0.

    States are remainders of the digits read so far, times the number of digits after the point.
    """
    _, digits, exponent = step.normalize().as_tuple()
    assert isinstance(exponent, int)
    places = max(0, -exponent)
    divisor = int("".join(map(str, digits)) + "0" * max(0, exponent))
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
