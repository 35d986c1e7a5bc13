"""How is a set of strings spelled in JSON?"""

from __future__ import annotations

from math import isqrt

from deepinfer_grammar.json_schema.strings import ALL_STRINGS, Bounded, Strings
from deepinfer_grammar.regular.charset import (
    CharSet,
    complement,
    contains,
    intersect,
    of_text,
    union,
)
from deepinfer_grammar.regular.dfa import Dfa, Edge
from deepinfer_grammar.regular.rules_of import add_automaton
from deepinfer_grammar.rules import (
    Choice,
    Class,
    Expression,
    Repeat,
    RuleSet,
    Sequence,
    Text,
)

__all__ = ["BEHIND", "add_strings", "quoted"]

EXACTLY_COUNTED = 32
"""Largest bound on a length that an automaton counts where the engines could count by themselves;
up to it texts may have escapes anywhere."""

ESCAPES = (1, 2, 8, 32)
"""Most escapes in a text that engines count; the more there are, the shorter the runs between."""

_PLAIN = complement(union([(0, 31)], of_text('"\\')))
"""Characters that stand for themselves in a JSON string."""

_SHORT = {8: "b", 9: "t", 10: "n", 12: "f", 13: "r", 34: '"', 92: "\\"}
_QUOTE, _BACKSLASH = 34, 92
_HEX = of_text("0123456789abcdefABCDEF")


def quoted(text: str) -> str:
    """A text as a JSON string, in its shortest spelling."""
    letters = (_escape(ord(x)) if x in '"\\' or ord(x) < 32 else x for x in text)
    return '"' + "".join(letters) + '"'


def _escape(code: int) -> str:
    return "\\" + _SHORT[code] if code in _SHORT else f"\\u{code:04x}"


def add_strings(grammar: RuleSet, strings: Strings) -> Expression:
    """A string of a set, quotes included.

    The quotes belong to the automaton: engines know the masks inside a rule beforehand, and must
    search where a rule ends. Long repetitions of one class they count by themselves.
    """
    if strings == ALL_STRINGS:
        return add_automaton(grammar, _any_spelling(), "text", BEHIND)
    if len(strings.parts) == 1:
        [part] = strings.parts
        chars, low = _repeated(part)
        if chars and max(low, part.high or 0) > EXACTLY_COUNTED:
            return _add_repeated(grammar, chars, low, part.high)
    is_counted = any(part.low > 0 or part.high is not None for part in strings.parts)
    spelling = _Spelling(strings.written(), is_counted).build()
    return add_automaton(grammar, spelling, "text", BEHIND)


BEHIND = Sequence((Repeat(Class(of_text(" \n\t")), 0, None), Class(of_text(",:]}"))))
"""What stands behind a value or a name in a JSON text; a little more than may stand there."""


def _repeated(strings: Bounded) -> tuple[CharSet, int]:
    """The class that a language repeats and how often at least; no class: it is another one."""
    edges, accepting = strings.dfa.edges, strings.dfa.accepting
    loop = tuple((low, high) for low, high, to in edges[-1] if to == len(edges) - 1)
    if accepting == (True,) and len(loop) == len(edges[0]):
        return loop, strings.low
    first = tuple((low, high) for low, high, to in edges[0] if to == 1)
    if accepting == (False, True) and first == loop and len(first) == len(edges[0]):
        return (loop, max(strings.low, 1)) if len(loop) == len(edges[1]) else ((), 0)
    return (), 0


def _add_repeated(grammar: RuleSet, chars: CharSet, low: int, high: int | None) -> Expression:
    """Long texts of one class: with any number of plain characters, or with some escapes.

    A rule for each number of escapes, with runs before, between and behind them that each engine
    counts by itself: so short that together they keep the upper bound, the first so long that it
    keeps the lower one.
    """
    quote = Text('"')
    unit = grammar.add(grammar.fresh("unit"), Class(intersect(chars, _PLAIN)))
    whole = Sequence((quote, Repeat(unit, low, high), quote))
    options: list[Expression] = [_add_followed(grammar, whole)]
    escapes = "".join(_SHORT[code] for code in sorted(_SHORT) if contains(chars, code))
    if not escapes or high is None:
        return options[0]
    escape = (Text("\\"), Class(of_text(escapes)))
    for count in sorted({min(count, isqrt(high)) for count in ESCAPES}):
        run, first = (high - count) // (count + 1), max(low - 1, 0)
        if run < first:
            break
        further = Sequence((Repeat(unit, 0, run), *escape))
        parts: list[Expression] = [quote, Repeat(unit, first, run), *escape]
        if count > 1:
            stretch = grammar.add(grammar.fresh("stretch"), further)
            parts.append(Repeat(stretch, 0, count - 1))
        options.append(_add_followed(grammar, Sequence((*parts, Repeat(unit, 0, run), quote))))
    return Choice(tuple(options))


def _add_followed(grammar: RuleSet, expression: Expression) -> Expression:
    name = grammar.fresh("text")
    grammar.followed[name] = BEHIND
    return grammar.add(name, expression)


class _Spelling:
    """Turns an automaton over characters into one over their spelling.

    Characters are escaped only where they must be. Where lengths are counted, control characters
    without a short escape are left out: each count would need four more states for them.
    """

    def __init__(self, dfa: Dfa, is_counted: bool) -> None:
        self.dfa = dfa
        self.is_counted = is_counted
        self.edges: list[list[Edge]] = [[], *([] for _ in dfa.edges), []]

    def build(self) -> Dfa:
        """From the opening quote to the closing one."""
        last = len(self.dfa.edges) + 1
        self.edges[0].append((_QUOTE, _QUOTE, 1))
        for state, edges in enumerate(self.dfa.edges):
            here = self.edges[state + 1]
            controls: dict[int, int] = {}
            for low, high, to in edges:
                here += [(a, b, to + 1) for a, b in intersect(((low, high),), _PLAIN)]
                codes = [*range(low, min(high, 31) + 1), *(c for c in (34, 92) if low <= c <= high)]
                controls.update(dict.fromkeys(codes, to + 1))
            self._escapes(here, controls)
            if self.dfa.accepting[state]:
                here.append((_QUOTE, _QUOTE, last))
        final = tuple(tuple(sorted(edges)) for edges in self.edges)
        return Dfa(final, tuple(state == last for state in range(len(final))))

    def _escapes(self, here: list[Edge], controls: dict[int, int]) -> None:
        """What follows a backslash: short escapes, and four digits for the other controls."""
        short = [(ord(_SHORT[code]), to) for code, to in controls.items() if code in _SHORT]
        long = {code: to for code, to in controls.items() if code not in _SHORT}
        if self.is_counted:
            long = {}
        if not short and not long:
            return
        escape = self._state()
        here.append((_BACKSLASH, _BACKSLASH, escape))
        self.edges[escape] += [(letter, letter, to) for letter, to in short]
        if long:
            first, second, third = self._state(), self._state(), self._state()
            self.edges[escape].append((ord("u"), ord("u"), first))
            self.edges[first].append((ord("0"), ord("0"), second))
            self.edges[second].append((ord("0"), ord("0"), third))
            for tens in (0, 1):
                digits = {code % 16: to for code, to in long.items() if code // 16 == tens}
                if digits:
                    last = self._state()
                    self.edges[third].append((48 + tens, 48 + tens, last))
                    for digit, to in digits.items():
                        letters = of_text(f"{digit:x}{digit:X}")
                        self.edges[last] += [(a, b, to) for a, b in letters]

    def _state(self) -> int:
        self.edges.append([])
        return len(self.edges) - 1


def _any_spelling() -> Dfa:
    """Every JSON string in every spelling; halves of a surrogate pair only together."""
    names = ("open", "in", "escape", "u", "d", "x3", "x2", "x1", "high2", "high1", "slash", "low",
             "lowd", "end")  # fmt: skip
    number = {name: index for index, name in enumerate(names)}
    table: dict[str, list[tuple[CharSet, str]]] = {
        "open": [(of_text('"'), "in")],
        "in": [(_PLAIN, "in"), (of_text("\\"), "escape"), (of_text('"'), "end")],
        "escape": [(of_text('"\\/bfnrt'), "in"), (of_text("u"), "u")],
        "u": [(of_text("0123456789abcefABCEF"), "x3"), (of_text("dD"), "d")],
        "d": [(of_text("01234567"), "x2"), (of_text("89abAB"), "high2")],
        "x3": [(_HEX, "x2")],
        "x2": [(_HEX, "x1")],
        "x1": [(_HEX, "in")],
        "high2": [(_HEX, "high1")],
        "high1": [(_HEX, "slash")],
        "slash": [(of_text("\\"), "low")],
        "low": [(of_text("u"), "lowd")],
        "lowd": [(of_text("dD"), "low3")],
        "low3": [(of_text("cdefCDEF"), "x2")],
        "end": [],
    }
    number["low3"] = len(number)
    order = sorted(number, key=lambda name: number[name])
    edges = tuple(
        tuple(sorted((a, b, number[to]) for chars, to in table[name] for a, b in chars))
        for name in order
    )
    return Dfa(edges, tuple(name == "end" for name in order))
