"""How does a shape of arrays become rules?

One rule a state; a state is the number of items so far, as far as it matters, and how many of each
counted kind there were. Two alternatives of a kind are disjoint: an item is of it, or is not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from typing import TYPE_CHECKING

from deepinfer_grammar.errors import SchemaFault, TooLarge
from deepinfer_grammar.json_schema.formulas import NOTHING, Constant, Formula, both, negated
from deepinfer_grammar.json_schema.numbers import SHORTEST
from deepinfer_grammar.json_schema.shapes import Arrays
from deepinfer_grammar.json_text import written_number
from deepinfer_grammar.regular.dfa import Dfa, intersection
from deepinfer_grammar.rules import Choice, Expression, Reference, Sequence, Text

if TYPE_CHECKING:
    from deepinfer_grammar.json_schema.grammar import JsonRules

__all__ = ["add_array"]

MAX_COUNTED_ITEMS = 5000
"""Largest bound on items; each number of items has a rule."""

MAX_DISTINCT = 8
"""Most different values of items that must be unique; each set of them has a rule."""


@dataclass(frozen=True, slots=True)
class _State:
    """What matters of the items so far: how many, how many of each kind, which values."""

    count: int = 0
    kinds: tuple[int, ...] = ()
    used: frozenset[str] = frozenset()


def add_array(rules: JsonRules, shape: Arrays) -> Expression:
    """What matches an array of a shape, brackets included.

    Raises:
        SchemaFault: equal items are forbidden and there are too many different ones.
        TooLarge: too many items would have to be counted.
    """
    return rules.shared(("array", shape), lambda: _Writer(rules, shape).build())


class _Writer:
    def __init__(self, rules: JsonRules, shape: Arrays) -> None:
        self.rules = rules
        self.shape = shape
        needs_count = shape.high is not None
        bound = max(shape.low, len(shape.prefix), shape.high or 0, 1)
        bound = max([bound, *(one.offset for one in shape.counted)])
        if bound > MAX_COUNTED_ITEMS and (needs_count or shape.low > MAX_COUNTED_ITEMS):
            raise TooLarge(f"over {MAX_COUNTED_ITEMS} items cannot be counted")
        self.last = bound
        self.options = self._distinct() if shape.unique_at else None
        self.names: dict[tuple[str, _State], str] = {}
        self.waiting: list[tuple[str, _State]] = []

    def build(self) -> Expression:
        """Add the rules of all states."""
        self.base = self.rules.grammar.fresh("array")
        first = self._rule("open", _State(0, (0,) * len(self.shape.counted)))
        while self.waiting:
            kind, state = self.waiting.pop()
            self.rules.grammar.add(self.names[kind, state], self._written(kind, state))
        return Sequence((Text("["), first))

    def _rule(self, kind: str, state: _State) -> Reference:
        """The rest of the array from a state on: behind its bracket, a comma, or an item."""
        if (kind, state) not in self.names:
            self.names[kind, state] = f"{self.base}i{len(self.names)}"
            self.waiting.append((kind, state))
        return Reference(self.names[kind, state])

    def _written(self, kind: str, state: _State) -> Expression:
        end = [(Text("]"),)] if self._may_end(state) else []
        if kind == "next":
            options = self.rules.spaced(end)
            if self._items(state):
                options.append(Sequence((Text(","), self._rule("comma", state))))
        else:
            options = self.rules.spaced([*self._items(state), *(end if kind == "open" else ())])
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _items(self, state: _State) -> list[tuple[Expression, ...]]:
        """What the next item may be, each with what follows it."""
        if self.shape.high is not None and state.count >= self.shape.high:
            return []
        return [
            (self.rules.value(formula), self._rule("next", following))
            for formula, following in self._steps(state)
            if formula != NOTHING
        ]

    def _may_end(self, state: _State) -> bool:
        return state.count >= self.shape.low and all(
            low >= one.low for low, one in zip(state.kinds, self.shape.counted, strict=True)
        )

    def _steps(self, state: _State) -> Iterator[tuple[Formula, _State]]:
        """Formulas of the next item, with the states after it."""
        item = self.shape.item(state.count)
        count = min(state.count + 1, self.last)
        choices = [
            (False, True) if state.count >= one.offset else (None,) for one in self.shape.counted
        ]
        for kinds in product(*choices):
            counts: list[int] = []
            parts = [item]
            is_possible = True
            pairs = zip(kinds, state.kinds, self.shape.counted, strict=True)
            for is_of_kind, known, one in pairs:
                limit = one.low if one.high is None else one.high
                after = known + bool(is_of_kind)
                is_possible &= one.high is None or after <= one.high
                counts.append(min(after, limit))
                if is_of_kind is True:
                    parts.append(one.formula)
                elif is_of_kind is False and (one.high is not None):
                    parts.append(negated(one.formula))
            if is_possible:
                formula = both(*parts)
                yield from self._unused(formula, _State(count, tuple(counts), state.used))

    def _unused(self, formula: Formula, state: _State) -> Iterator[tuple[Formula, _State]]:
        if self.options is None:
            yield formula, state
            return
        for text in self.options:
            if text not in state.used:
                used = state.used | {text}
                yield both(formula, Constant(text)), _State(state.count, state.kinds, used)

    def _distinct(self) -> list[str] | None:
        """All values that items may have, where equal ones are forbidden; None: no need to look."""
        shape = self.shape
        if shape.high is not None and shape.high <= 1:
            return None
        formulas = dict.fromkeys((*shape.prefix, shape.rest))
        found: dict[str, None] = {}
        for formula in formulas:
            texts = self._finite(formula)
            if texts is None or len(found.keys() | texts.keys()) > MAX_DISTINCT:
                raise SchemaFault(
                    f"uniqueItems needs items of at most {MAX_DISTINCT} different values, none of"
                    " them an array or object",
                    shape.unique_at,
                    hint="list the values with enum, or leave the keyword out",
                )
            found.update(texts)
        return list(found)

    def _finite(self, formula: Formula) -> dict[str, None] | None:
        """The values of a formula, if they are few and no arrays or objects."""
        values = self.rules.meaning.values(formula)
        if values.arrays or values.objects:
            return None
        numbers = _texts(intersection(values.numbers, SHORTEST))
        found = dict.fromkeys([*(["null"] if values.has_null else [])])
        found.update(dict.fromkeys(str(one).lower() for one in sorted(values.booleans)))
        texts = _texts(values.strings.written()) if not values.strings.is_empty else []
        if texts is None or numbers is None:
            return None
        found.update(dict.fromkeys(written_number(Decimal(text)) for text in numbers))
        found.update(dict.fromkeys(json.dumps(text) for text in texts))
        return found


def _texts(dfa: Dfa) -> list[str] | None:
    """All texts of an automaton; None if there are more than ``MAX_DISTINCT``."""
    found: list[str] = []
    waiting = [(0, "")]
    while waiting:
        state, text = waiting.pop(0)
        if len(text) > len(dfa.edges):
            return None
        if dfa.accepting[state]:
            found.append(text)
        for low, high, to in dfa.edges[state]:
            if high - low > MAX_DISTINCT:
                return None
            waiting.extend((to, text + chr(code)) for code in range(low, high + 1))
        if len(found) > MAX_DISTINCT or len(waiting) > 1000:
            return None
    return found
