"""Which texts may a string hold, and how are they spelled in JSON?

A set of strings is an automaton over their characters, and bounds on their length beside it: with
bounds inside, the automaton would have a state for each length.
"""

from __future__ import annotations

from dataclasses import dataclass

from deepinfer_grammar.errors import TooLarge
from deepinfer_grammar.regular.charset import ANY, CharSet, complement, intersect, of_text, union
from deepinfer_grammar.regular.dfa import (
    EMPTY,
    EVERYTHING,
    Dfa,
    intersection,
    inverse,
    unite,
)
from deepinfer_grammar.regular.rules_of import add_automaton, as_written
from deepinfer_grammar.rules import (
    Choice,
    Class,
    Expression,
    Reference,
    Repeat,
    RuleSet,
    Sequence,
    Text,
)

__all__ = ["ALL_STRINGS", "NO_STRINGS", "Strings", "add_strings", "json_character", "quoted"]

MAX_COUNTED = 3000
"""Largest bound on a length that an automaton counts."""


@dataclass(frozen=True, slots=True)
class Strings:
    """Texts of an automaton with ``low`` to ``high`` characters; None has no upper bound."""

    dfa: Dfa = EVERYTHING
    low: int = 0
    high: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is certainly none."""
        return self.dfa.is_empty or (self.high is not None and self.high < self.low)

    def counted(self) -> Dfa:
        """One automaton for everything.

        Raises:
            TooLarge: a bound on the length is too large to count.
        """
        if self.low == 0 and self.high is None:
            return self.dfa
        if max(self.low, self.high or 0) > MAX_COUNTED:
            raise TooLarge(f"a length over {MAX_COUNTED} cannot be counted beside a pattern")
        try:
            return intersection(self.dfa, _of_length(self.low, self.high))
        except TooLarge as error:
            what = f"a length of {self.low} to {self.high} beside a pattern"
            raise TooLarge(f"{what}: {error.message}") from error

    def meet(self, other: Strings) -> Strings:
        """Texts of both."""
        highs = [high for high in (self.high, other.high) if high is not None]
        dfa = intersection(self.dfa, other.dfa)
        return Strings(dfa, max(self.low, other.low), min(highs, default=None))

    def join(self, other: Strings) -> Strings:
        """Texts of either."""
        if self.is_empty or other == self or other == ALL_STRINGS:
            return other
        if other.is_empty or self == ALL_STRINGS:
            return self
        if (self.low, self.high) == (other.low, other.high):
            return Strings(unite(self.dfa, other.dfa), self.low, self.high)
        return Strings(unite(self.counted(), other.counted()))

    def inverse(self) -> Strings:
        """All other texts."""
        if self.dfa.is_everything and self.low == 0:
            return NO_STRINGS if self.high is None else Strings(low=self.high + 1)
        if self.dfa.is_everything and self.high is None:
            return Strings(high=self.low - 1)
        return Strings(inverse(self.counted()))


ALL_STRINGS = Strings()
NO_STRINGS = Strings(EMPTY)


def _of_length(low: int, high: int | None) -> Dfa:
    last = low if high is None else high
    if high is not None and high < low:
        return EMPTY
    edges = [tuple((one, two, index + 1) for one, two in ANY) for index in range(last)]
    edges.append(tuple((one, two, last) for one, two in ANY) if high is None else ())
    return Dfa(tuple(edges), tuple(index >= low for index in range(last + 1)))


_MUST_ESCAPE = union([(0, 31)], of_text('"\\'))
_SHORT = {8: "b", 9: "t", 10: "n", 12: "f", 13: "r", 34: '"', 92: "\\"}
_HEX = Class(of_text("0123456789abcdefABCDEF"))


def quoted(text: str) -> str:
    """A text as a JSON string, in its shortest spelling."""
    letters = (_escape(ord(x)) if x in '"\\' or ord(x) < 32 else x for x in text)
    return '"' + "".join(letters) + '"'


def _escape(code: int) -> str:
    return "\\" + _SHORT[code] if code in _SHORT else f"\\u{code:04x}"


def spelled(chars: CharSet) -> Expression:
    """One character of a set inside a JSON string: as it is, escaped only where it must be."""
    plain = intersect(chars, complement(_MUST_ESCAPE))
    options: list[Expression] = [as_written(plain)] if plain else []
    for low, high in intersect(chars, _MUST_ESCAPE):
        options.extend(Text(_escape(code)) for code in range(low, high + 1))
    return options[0] if len(options) == 1 else Choice(tuple(options))


def json_character(grammar: RuleSet) -> Expression:
    """Any one character of a JSON string in any spelling; halves of a pair only together."""
    if "character" in grammar.rules:
        return Reference("character")
    plain = Class(complement(_MUST_ESCAPE))
    short = Class(of_text('"\\/bfnrt'))
    alone = Choice(
        (
            Sequence((Class(of_text("0123456789abcefABCEF")), _HEX, _HEX, _HEX)),
            Sequence((Class(of_text("dD")), Class(of_text("01234567")), _HEX, _HEX)),
            Sequence(
                (
                    Class(of_text("dD")),
                    Class(of_text("89abAB")),
                    _HEX,
                    _HEX,
                    Text("\\u"),
                    Class(of_text("dD")),
                    Class(of_text("cdefCDEF")),
                    _HEX,
                    _HEX,
                )
            ),
        )
    )
    escaped = Sequence((Text("\\"), Choice((short, Sequence((Text("u"), alone))))))
    return grammar.add("character", Choice((plain, escaped)))


def add_strings(grammar: RuleSet, strings: Strings) -> Expression:
    """A string of a set, quotes included."""
    quote = Text('"')
    if strings.dfa.is_everything:
        inner: Expression = Repeat(json_character(grammar), strings.low, strings.high)
    elif strings.low == 0 and strings.high is None:
        inner = add_automaton(grammar, strings.dfa, "text", spelled)
    else:
        inner = add_automaton(grammar, strings.counted(), "text", spelled)
    return Sequence((quote, inner, quote))

