"""At which place of a schema does it become impossible to match?"""

from __future__ import annotations

from collections.abc import Iterator

from deepinfer_grammar.errors import SchemaFault
from deepinfer_grammar.json_schema.document import Document, Place
from deepinfer_grammar.json_schema.formulas import Every, Formula, Schema
from deepinfer_grammar.json_schema.grammar import JsonRules
from deepinfer_grammar.json_schema.keywords import KEYWORDS
from deepinfer_grammar.json_schema.meaning import Meaning, place_of
from deepinfer_grammar.json_schema.values import ALL, Values
from deepinfer_grammar.rules import productive

__all__ = ["impossible_place"]

_FIRST_ITEMS = 64
"""Items of an array that are looked at; those behind them are of one kind nearly always."""


def impossible_place(text: str) -> tuple[str, str]:
    """Where a schema that matches nothing says so.

    Args:
        text: the schema, which has rules.

    Returns:
        The path of a keyword or schema, and what is wrong there.
    """
    document = Document(text)
    if document.root is False:
        return "#", "false allows no value"
    meaning = Meaning(document)
    return _Search(meaning).place(Schema(document.start()))


class _Search:
    """Goes from a formula to one inside it that cannot be met, as long as there is one."""

    def __init__(self, meaning: Meaning) -> None:
        self._meaning = meaning
        self._rules = JsonRules(meaning)

    def place(self, formula: Formula) -> tuple[str, str]:
        """Path and reason of a formula that cannot be met."""
        self._rules.build(formula)
        live = productive(self._rules.grammar.rules)
        seen: list[Formula] = []
        while formula not in seen:
            seen.append(formula)
            values = self._meaning.values(formula)
            if _is_nothing(values):
                return self._empty(formula, seen)
            names = ((one, self._rules.name(one)) for one in _needed(values))
            inner = (one for one, name in names if name and name not in live)
            found = next(inner, None)
            if found is None:
                return self._impossible(formula, seen)
            formula = found
        return self._path(seen), "each of its values needs another one of it inside, without end"

    def _impossible(self, formula: Formula, seen: list[Formula]) -> tuple[str, str]:
        """Which keyword leaves no array and no object that can be written."""
        why = "no array or object can be as this and the keywords before it ask for"
        if not isinstance(formula, Schema):
            return self._path(seen), why
        schema, found = self._meaning.document.at(formula.place), ALL
        for key in schema:
            if key in KEYWORDS:
                found = found.meet(KEYWORDS[key](self._meaning, formula.place, schema))
                if not self._can_be_written(found, formula):
                    return str(formula.place.below(key)), why
        return self._path(seen), why

    def _can_be_written(self, values: Values, formula: Formula) -> bool:
        try:
            rules = JsonRules(self._meaning).build_values(values, formula)
        except SchemaFault:  # a keyword that needs a later one
            return True
        return rules.start in productive(rules.rules)

    def _path(self, seen: list[Formula]) -> str:
        """Of the innermost formula that has a place."""
        return next((path for one in reversed(seen) if (path := place_of(one))), "#")

    def _empty(self, formula: Formula, seen: list[Formula]) -> tuple[str, str]:
        """Which keyword leaves nothing of what those before it leave."""
        if isinstance(formula, Every):
            parts = [part for part in formula.parts if isinstance(part, Schema)]
            formula = next((p for p in parts if _is_nothing(self._meaning.values(p))), formula)
        if not isinstance(formula, Schema):
            return self._path(seen), "no value is as it asks for"
        schema, found = self._meaning.document.at(formula.place), ALL
        if not isinstance(schema, dict):
            return str(formula.place), "false allows no value"
        for key in schema:
            if key in KEYWORDS:
                found = found.meet(KEYWORDS[key](self._meaning, formula.place, schema))
                if _is_nothing(found):
                    return self._inner(formula.place, key)
        return str(formula.place), "no value is as it asks for"

    def _inner(self, place: Place, key: str) -> tuple[str, str]:
        """The keyword, or a schema in it that allows nothing by itself."""
        if key == "$ref":
            target = Schema(self._meaning.document.resolve(place, key))
            if _is_nothing(self._meaning.values(target)):
                return self._empty(target, [target])
        schema = self._meaning.document.at(place)
        listed, required = schema.get("properties", {}), schema.get("required", [])
        if key in ("properties", "required"):
            for name in required:
                if listed.get(name) is False:
                    path = place.below("properties", name)
                    return str(path), "this member must be there, and false allows no value"
        return str(place.below(key)), "no value meets this and the keywords before it"


def _is_nothing(values: Values) -> bool:
    return not (
        values.has_null
        or values.booleans
        or not values.numbers.is_empty
        or not values.strings.is_empty
        or values.arrays
        or values.objects
    )


def _needed(values: Values) -> Iterator[Formula]:
    """What the members and items are that each array and object must have."""
    for one in values.objects:
        yield from (member.formula for member in one.named if member.is_required)
        yield from (formula for _, formula in one.some)
        if one.low > sum(member.is_required for member in one.named):
            yield from (formula for _, formula in one.others)
    for shape in values.arrays:
        yield from (shape.item(index) for index in range(min(shape.low, _FIRST_ITEMS)))
        yield from (counted.formula for counted in shape.counted if counted.low)
