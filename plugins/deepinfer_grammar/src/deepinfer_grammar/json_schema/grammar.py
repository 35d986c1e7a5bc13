"""How does a set of JSON values become rules?

Members are written in the order in which the schema names them, others after them. Between tokens
stands white space of bounded length: one blank, or a line end and an indentation; none before a
comma or colon, and none around the whole. A weak model cannot idle in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deepinfer_grammar.errors import SchemaFault, TooLarge
from deepinfer_grammar.json_schema.array_rules import add_array
from deepinfer_grammar.json_schema.formulas import NOTHING, Formula
from deepinfer_grammar.json_schema.object_rules import add_object
from deepinfer_grammar.json_schema.string_rules import BEHIND, add_strings
from deepinfer_grammar.regular.charset import of_text
from deepinfer_grammar.regular.rules_of import add_automaton
from deepinfer_grammar.rules import (
    EMPTY,
    Choice,
    Class,
    Expression,
    Reference,
    RuleSet,
    Sequence,
    Text,
)

if TYPE_CHECKING:
    from deepinfer_grammar.json_schema.meaning import Meaning
    from deepinfer_grammar.json_schema.values import Values

__all__ = ["JsonRules"]

INDENTATION = 64
"""Most blanks after a line end: eight levels of eight."""


BEGINNING = Class(of_text('"{}[]-0123456789tfn'))
"""First characters of a value, a name of a member, or what closes an array or object."""


class JsonRules:
    """Rules for formulas, each made once.

    Args:
        meaning: gives the values of a formula.
    """

    def __init__(self, meaning: Meaning) -> None:
        self.meaning = meaning
        self.grammar = RuleSet()
        self.grammar.rules["start"] = EMPTY
        self._names: dict[Formula, str] = {}
        self._waiting: list[Formula] = []
        self._parts: dict[object, Expression] = {}
        self._indent = self._indentation()

    def build(self, formula: Formula) -> RuleSet:
        """The grammar whose start is a formula."""
        return self._built(self.value(formula))

    def build_values(self, values: Values, formula: Formula) -> RuleSet:
        """The grammar of some values, which are told of as those of a formula."""
        return self._built(self._written(values, formula))

    def _built(self, start: Expression) -> RuleSet:
        self.grammar.rules["start"] = start
        while self._waiting:
            waiting = self._waiting.pop()
            self.grammar.add(
                self._names[waiting], self._written(self.meaning.values(waiting), waiting)
            )
        return self.grammar

    def value(self, formula: Formula) -> Expression:
        """What matches a value of a formula."""
        if formula == NOTHING:
            return Choice(())
        if formula not in self._names:
            self._names[formula] = f"value_{len(self._names)}"
            self._waiting.append(formula)
        return Reference(self._names[formula])

    def name(self, formula: Formula) -> str:
        """The rule that matches values of a formula; empty if none was needed."""
        return self._names.get(formula, "")

    def spaced(self, parts: Iterable[tuple[Expression, ...]]) -> list[Expression]:
        """Alternatives, each with white space before it or none.

        They are written flat, so that an engine has one state for all of them: a rule for the space
        would be one more, at most places of a text.
        """
        options = [*parts]
        blank, line = Text(" "), Text("\n")
        return [
            *(Sequence(one) for one in options),
            *(Sequence((blank, *one)) for one in options),
            *(Sequence((line, self._indent, *one)) for one in options),
        ]

    def shared(self, key: object, build: Callable[[], Expression]) -> Expression:
        """A part that several rules use, made once."""
        if key not in self._parts:
            found = build()
            if not isinstance(found, Reference):
                found = self.grammar.add(self.grammar.fresh("part"), found)
            self._parts[key] = found
        return self._parts[key]

    def _indentation(self) -> Reference:
        """What matches blanks behind a line end: a rule for each number of them that may follow.

        A repetition is one rule, at each place of which an engine asks anew what follows it.
        """
        blank = Class(of_text(" \t"))
        for count in range(INDENTATION + 1):
            name = f"indent_{count}"
            further = Sequence((blank, Reference(f"indent_{count - 1}")))
            self.grammar.add(name, Choice((EMPTY, further)) if count else EMPTY)
            self.grammar.followed[name] = BEGINNING
        return Reference(f"indent_{INDENTATION}")

    def _written(self, values: Values, formula: Formula) -> Expression:
        options: list[Expression] = []
        if values.has_null:
            options.append(Text("null"))
        options.extend(Text(str(value).lower()) for value in sorted(values.booleans))
        if not values.numbers.is_empty:
            numbers = values.numbers
            options.append(
                self.shared(
                    ("number", numbers),
                    lambda: add_automaton(self.grammar, numbers, "number", BEHIND),
                )
            )
        if not values.strings.is_empty:
            strings = values.strings
            with self._placed(formula, "minLength", "maxLength"):
                options.append(
                    self.shared(("string", strings), lambda: add_strings(self.grammar, strings))
                )
        with self._placed(formula, "maxItems", "minItems"):
            options.extend(add_array(self, shape) for shape in values.arrays)
        with self._placed(formula, "maxProperties", "minProperties"):
            options.extend(add_object(self, shape) for shape in values.objects)
        return options[0] if len(options) == 1 else Choice(tuple(options))

    @contextmanager
    def _placed(self, formula: Formula, *keys: str) -> Iterator[None]:
        """What is too large is so at the first of some keywords of a formula."""
        try:
            yield
        except TooLarge as error:
            raise SchemaFault(error.message, self.meaning.path_of(formula, *keys)) from error
