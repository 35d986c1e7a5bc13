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

from deepinfer_grammar.errors import SchemaFault
from deepinfer_grammar.json_schema.formulas import NOTHING, Formula, both
from deepinfer_grammar.json_schema.shapes import MAX_LOOSE, Objects
from deepinfer_grammar.json_schema.strings import Strings, add_strings, quoted
from deepinfer_grammar.regular.charset import CharSet, complement, union
from deepinfer_grammar.regular.dfa import EMPTY, Dfa, Edge, difference, intersection, of_texts
from deepinfer_grammar.rules import Choice, Expression, Reference, Sequence, Text

if TYPE_CHECKING:
    from deepinfer_grammar.json_schema.grammar import JsonRules

__all__ = ["add_object"]

MAX_COUNTED_MEMBERS = 200
"""Largest bound on members; each number of members has rules."""

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
    """What matches an object of a shape, braces included."""
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
            raise SchemaFault(f"over {MAX_COUNTED_MEMBERS} members cannot be counted", "#")
        self.needed = max(0, self.low - required)
        self.is_ascending = self.needed > 2
        self.names: dict[_State, str] = {}
        self.waiting: list[_State] = []

    def build(self) -> Expression:
        """Add the rules of all states."""
        self.base = self.rules.grammar.fresh("object")
        first = self._after(_State(0, 0))
        while self.waiting:
            state = self.waiting.pop()
            self.rules.grammar.add(self.names[state], self._state(state))
        return Sequence((Text("{"), first))

    def _after(self, state: _State) -> Reference:
        if state not in self.names:
            self.names[state] = f"{self.base}m{len(self.names)}"
            self.waiting.append(state)
        return Reference(self.names[state])

    def _state(self, state: _State) -> Expression:
        options = [
            Sequence((*self._comma(state), self.rules.space, member, following))
            for member, following in self._steps(state)
        ]
        if state.place < len(self.named):
            if not self.named[state.place].is_required:
                options.append(Sequence((self._after(_State(state.place + 1, state.count)),)))
        elif not self.shape.some and self._may_end(state):
            options.append(Sequence((self.rules.space, Text("}"))))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _may_end(self, state: _State) -> bool:
        return state.count >= self.low and all(
            one.name in state.seen for one in self.loose if one.is_required
        )

    def _comma(self, state: _State) -> tuple[Expression, ...]:
        return (Text(","),) if state.count else ()

    def _steps(self, state: _State) -> Iterator[tuple[Expression, Expression]]:
        """Members that may come next, each with what follows it."""
        if self.high is not None and state.count >= self.high:
            return
        count = min(state.count + 1, self.cap)
        if state.place < len(self.named):
            one = self.named[state.place]
            member = self._member(Text(quoted(one.name)), one.formula)
            yield member, self._after(_State(state.place + 1, count))
            return
        for one in self.loose:
            if one.name not in state.seen:
                member = self._member(Text(quoted(one.name)), one.formula)
                seen = state.seen | {one.name}
                yield member, self._after(replace(state, count=count, seen=seen))
        for dfa, formula in self.others:
            for part, following in self._beginnings(dfa, state):
                yield self._other(part, formula), self._after(following)
        if self.shape.some:
            yield from self._last(state)

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

    def _last(self, state: _State) -> Iterator[tuple[Expression, Expression]]:
        """The member that fulfils all of ``some``, and the end of the object."""
        needed = {one.name for one in self.loose if one.is_required}
        if state.count + 1 < self.low or state.begun or not needed <= state.seen:
            return
        end = Sequence((self.rules.space, Text("}")))
        for dfa, formula in self.others:
            for wanted, condition in self.shape.some[:1]:
                names = intersection(dfa, wanted)
                formulas = [formula, condition]
                for more, further in self.shape.some[1:]:
                    names = intersection(names, more)
                    formulas.append(further)
                if not names.is_empty:
                    yield self._other(names, both(*formulas)), end

    def _other(self, names: Dfa, formula: Formula) -> Expression:
        name = self.rules.shared(
            ("string", Strings(names)), lambda: add_strings(self.rules.grammar, Strings(names))
        )
        return self._member(name, formula)

    def _member(self, name: Expression, formula: Formula) -> Expression:
        return Sequence((name, Text(":"), self.rules.space, self.rules.value(formula)))


@cache
def _beginning(dfa: Dfa, letters: CharSet) -> Dfa:
    """Texts of an automaton that begin with one of some letters."""
    everything = Dfa((tuple((low, high, 1) for low, high in letters), _ANY_EDGES), (False, True))
    return intersection(dfa, everything)


_ANY_EDGES: tuple[Edge, ...] = ((0, 0xD7FF, 1), (0xE000, 0x10FFFF, 1))
