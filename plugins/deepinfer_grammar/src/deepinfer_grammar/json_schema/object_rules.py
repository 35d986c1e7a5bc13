"""How does a shape of objects become rules?

Named members come first, in their order, then the others. A state is the place in that order and
how many members there were, as far as it matters. Members that ``minProperties`` needs beyond the
named ones must begin with different letters (over two of them: in the order of the alphabet): a
repeated name would count twice here and once for the reader. The member that ``some`` asks for
comes last, so that no later one replaces it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from deepinfer_grammar.errors import TooLarge
from deepinfer_grammar.json_schema.formulas import NOTHING, Formula, both
from deepinfer_grammar.json_schema.shapes import MAX_LOOSE, Objects
from deepinfer_grammar.json_schema.string_rules import add_strings, quoted
from deepinfer_grammar.json_schema.strings import Strings
from deepinfer_grammar.regular.charset import CharSet, complement, union
from deepinfer_grammar.regular.dfa import EMPTY, Dfa, Edge, difference, intersection, of_texts
from deepinfer_grammar.rules import Choice, Expression, Reference, Sequence, Text

if TYPE_CHECKING:
    from deepinfer_grammar.json_schema.grammar import JsonRules

__all__ = ["add_object"]

MAX_COUNTED_MEMBERS = 200
"""Largest bound on members; each number of members has rules."""

WRITTEN_TOGETHER = 16
"""Most optional members written as alternatives of one rule; each rule names those behind it too,
so the grammar grows as the square."""

_LETTERS: tuple[CharSet, ...] = tuple(((code, code),) for code in range(97, 123))
_BEGINNINGS = (*_LETTERS, complement(union(*_LETTERS)))
"""Sets of first letters; names that begin in different ones are different."""


@dataclass(frozen=True, slots=True)
class _State:
    """Where the writer stands.

    Attributes:
        place: index of the next named member; the number of them once others may follow.
        count: members so far, as far as it matters.
        extras: others so far, as far as it matters.
        begun: first letters of those, as far as it matters.
        seen: names without a place of their own that were written.
    """

    place: int
    count: int
    extras: int = 0
    begun: frozenset[int] = frozenset()
    seen: frozenset[str] = frozenset()


def add_object(rules: JsonRules, shape: Objects) -> Expression:
    """What matches an object of a shape, braces included.

    Raises:
        TooLarge: too many members would have to be counted.
    """
    return rules.shared(("object", shape), lambda: _Writer(rules, shape).build())


class _Writer:
    def __init__(self, rules: JsonRules, shape: Objects) -> None:
        self.rules = rules
        self.shape = shape
        known = [one for one in shape.named if one.formula != NOTHING or one.is_required]
        loose = [one for one in known if not one.is_listed]
        self.loose = loose if len(loose) <= MAX_LOOSE else []
        self.named = sorted(
            (one for one in known if one not in self.loose), key=lambda one: not one.is_listed
        )
        names = of_texts(shape.names()) if shape.named else EMPTY
        self.others = [
            (difference(dfa, names), formula) for dfa, formula in shape.others if formula != NOTHING
        ]
        self.others = [part for part in self.others if not part[0].is_empty]
        required = sum(one.is_required for one in known)
        has_bound = shape.high is not None and (bool(self.others) or shape.high < len(known))
        self.high = shape.high if has_bound else None
        self.low = shape.low if shape.low > required else 0
        self.cap = max(self.low, 1 if self.high is None else self.high)
        if self.cap > MAX_COUNTED_MEMBERS:
            raise TooLarge(f"over {MAX_COUNTED_MEMBERS} members cannot be counted")
        self.needed = max(0, self.low - required)
        self.is_ascending = self.needed > 2
        self.names: dict[tuple[str, _State], str] = {}
        self.waiting: list[tuple[str, _State]] = []

    def build(self) -> Expression:
        """Add the rules of all states."""
        self.base = self.rules.grammar.fresh("object")
        first = self._rule("open", _State(0, 0))
        while self.waiting:
            kind, state = self.waiting.pop()
            self.rules.grammar.add(self.names[kind, state], self._written(kind, state))
        return Sequence((Text("{"), first))

    def _rule(self, kind: str, state: _State) -> Reference:
        """The rest of the object from a state on: behind its brace, a comma, or a member."""
        if (kind, state) not in self.names:
            self.names[kind, state] = f"{self.base}m{len(self.names)}"
            self.waiting.append((kind, state))
        return Reference(self.names[kind, state])

    def _written(self, kind: str, state: _State) -> Expression:
        end = [(Text("}"),)] if self._may_end(state) else []
        if kind == "more":
            options: list[Expression] = [Sequence(one) for one in self._members(state)]
        elif kind == "next":
            options = self.rules.spaced(end)
            if self._members(state):
                options.append(Sequence((Text(","), self._rule("comma", state))))
        else:
            options = self.rules.spaced([*self._members(state), *(end if kind == "open" else ())])
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _members(self, state: _State) -> list[tuple[Expression, ...]]:
        """Members that may come next, each with what follows it."""
        if self.high is not None and state.count >= self.high:
            return []
        found: list[tuple[Expression, ...]] = []
        count = min(state.count + 1, self.cap)
        for place in range(state.place, len(self.named)):
            if place == state.place + WRITTEN_TOGETHER:
                return [*found, (self._rule("more", replace(state, place=place)),)]
            one = self.named[place]
            following = self._rule("next", _State(place + 1, count))
            found.append((Text(quoted(one.name)), *self._value(one.formula, following)))
            if one.is_required:
                return found
        at_end = replace(state, place=len(self.named))
        return [*found, *self._unlisted(at_end, count), *self._last(at_end)]

    def _value(self, formula: Formula, following: Expression) -> tuple[Expression, ...]:
        """A colon, a value and what follows it."""
        value = self.rules.value(formula)
        rest = self.rules.shared(
            ("value", formula, following),
            lambda: Choice(tuple(self.rules.spaced([(value, following)]))),
        )
        return Text(":"), rest

    def _may_end(self, state: _State) -> bool:
        if self.shape.some or state.count < self.low:
            return False
        if any(one.is_required for one in self.named[state.place :]):
            return False
        return all(one.name in state.seen for one in self.loose if one.is_required)

    def _unlisted(self, state: _State, count: int) -> Iterator[tuple[Expression, ...]]:
        """Members behind the listed ones."""
        for one in self.loose:
            if one.name not in state.seen:
                seen = state.seen | {one.name}
                following = self._rule("next", replace(state, count=count, seen=seen))
                yield (Text(quoted(one.name)), *self._value(one.formula, following))
        for dfa, formula in self.others:
            for part, after in self._beginnings(dfa, state):
                yield (self._name(part), *self._value(formula, self._rule("next", after)))

    def _beginnings(self, dfa: Dfa, state: _State) -> Iterator[tuple[Dfa, _State]]:
        """Names of the next other member, and the state after it."""
        if state.count >= self.low:
            yield dfa, self._counting(state, frozenset())
        elif self.high is None and state.extras >= self.needed:
            yield dfa, state
        elif self.needed == 1 and not state.extras:
            yield dfa, self._counting(state, frozenset())
        else:
            for index, letters in enumerate(_BEGINNINGS):
                if index in state.begun or (
                    self.is_ascending and index < min(state.begun, default=0)
                ):
                    continue
                part = _beginning(dfa, letters)
                begun = frozenset({index}) if self.is_ascending else state.begun | {index}
                if not part.is_empty:
                    yield part, self._counting(state, begun)

    def _counting(self, state: _State, begun: frozenset[int]) -> _State:
        """The state after an other member that counts."""
        count = min(state.count + 1, self.cap)
        extras = min(state.extras + 1, self.needed)
        if count >= self.low or (self.high is None and extras == self.needed):
            begun = frozenset()
        return replace(state, count=count, extras=extras, begun=begun)

    def _last(self, state: _State) -> Iterator[tuple[Expression, ...]]:
        """The member that fulfils all of ``some``, and the end of the object."""
        needed = {one.name for one in self.loose if one.is_required}
        if not self.shape.some or state.count + 1 < self.low or state.begun:
            return
        if not needed <= state.seen:
            return
        end = self.rules.shared("end", lambda: Choice(tuple(self.rules.spaced([(Text("}"),)]))))
        for dfa, formula in self.others:
            names, formulas = dfa, [formula]
            for wanted, condition in self.shape.some:
                names = intersection(names, wanted)
                formulas.append(condition)
            if not names.is_empty:
                yield (self._name(names), *self._value(both(*formulas), end))

    def _name(self, names: Dfa) -> Expression:
        strings = Strings.of(names)
        return self.rules.shared(
            ("string", strings), lambda: add_strings(self.rules.grammar, strings)
        )


@cache
def _beginning(dfa: Dfa, letters: CharSet) -> Dfa:
    """Texts of an automaton that begin with one of some letters."""
    everything = Dfa((tuple((low, high, 1) for low, high in letters), _ANY_EDGES), (False, True))
    return intersection(dfa, everything)


_ANY_EDGES: tuple[Edge, ...] = ((0, 0xD7FF, 1), (0xE000, 0x10FFFF, 1))
