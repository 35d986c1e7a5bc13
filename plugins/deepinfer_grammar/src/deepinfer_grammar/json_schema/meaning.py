"""Which values does a schema of a document allow?

``Meaning`` looks one level deep: children of arrays and objects stay formulas until the grammar
needs them, which is what lets recursive schemas end.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

from deepinfer_grammar.errors import SchemaFault, TooLarge
from deepinfer_grammar.json_schema.constants import constant_values
from deepinfer_grammar.json_schema.document import Document, Place
from deepinfer_grammar.json_schema.formulas import (
    ANYTHING,
    NOTHING,
    Constant,
    Either,
    Every,
    Formula,
    Not,
    Schema,
    both,
    either,
    negated,
)
from deepinfer_grammar.json_schema.keywords import KEYWORDS
from deepinfer_grammar.json_schema.shapes import Arrays, Objects, Property
from deepinfer_grammar.json_schema.values import ALL, NONE, Values
from deepinfer_grammar.regular.dfa import EVERYTHING, difference, intersection

__all__ = ["Meaning", "place_of"]

MAX_BRANCHES = 8
"""Most branches of an ``anyOf`` beside ``unevaluated...``, which asks for each set of them."""

LOOK_DEPTH = 8
"""How deep two schemas are compared before ``oneOf`` takes them for overlapping."""


class Meaning:
    """The values of formulas over one document.

    Args:
        document: the schema text.
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        self._known: dict[Formula, Values] = {}
        self._under_way: dict[Formula, None] = {}
        self._empty: dict[tuple[Formula, int], bool] = {}

    def formula(self, place: Place, *steps: str | int) -> Formula:
        """The formula of a schema inside a schema.

        Raises:
            SchemaFault: it is neither an object nor true or false.
        """
        inner = self.document.child(place, *steps)
        value = self.document.at(inner)
        if value is True or value == {}:
            return ANYTHING
        if value is False:
            return NOTHING
        if not isinstance(value, dict):
            raise SchemaFault("must be a schema", str(inner))
        return Schema(inner)

    def values(self, formula: Formula) -> Values:
        """The values of a formula.

        Raises:
            SchemaFault: something in it is wrong or cannot be enforced.
        """
        if formula in self._known:
            return self._known[formula]
        if formula in self._under_way:
            raise SchemaFault(
                "the schema refers to itself without a value in between", place_of(formula)
            )
        self._under_way[formula] = None
        try:
            found = self._found(formula)
        except TooLarge as error:
            raise SchemaFault(error.message, self._where()) from error
        except RecursionError as error:
            raise SchemaFault("too many schemas inside each other", self._where()) from error
        finally:
            del self._under_way[formula]
        self._known[formula] = found
        return found

    def path_of(self, formula: Formula, *keys: str) -> str:
        """Path of the first of some keywords in the schema of a formula, or of that schema."""
        match formula:
            case Schema(place):
                schema = self.document.at(place)
                key = next((key for key in keys if isinstance(schema, dict) and key in schema), "")
                return str(place.below(key) if key else place)
        return place_of(formula) or "#"

    def _where(self) -> str:
        """Path of the innermost schema under way."""
        return next((p for one in reversed(self._under_way) if (p := place_of(one))), "#")

    def _found(self, formula: Formula) -> Values:
        match formula:
            case Schema(place):
                return self._schema(place)
            case Constant():
                return constant_values(formula)
            case Every(parts):
                found = ALL
                for part in parts:
                    found = found.meet(self.values(part))
                return found
            case Either(parts):
                return self.any_of(list(parts))
            case Not(part):
                return self._complement(part)

    def _complement(self, formula: Formula) -> Values:
        """Values outside a formula; laws of logic first, as they keep alternatives apart."""
        match formula:
            case Every(parts):
                return self.any_of([negated(part) for part in parts])
            case Either(parts):
                return self.values(both(*(negated(part) for part in parts)))
        return self.values(formula).plain().complement()

    def _schema(self, place: Place) -> Values:
        schema = self.document.at(place)
        if schema is True:
            return ALL
        if schema is False:
            return NONE
        if not isinstance(schema, dict):
            raise SchemaFault("must be a schema", str(place))
        found = ALL
        # Members listed by the schema itself come first, in its order, before those of its parts.
        for key in sorted(schema, key=lambda key: key != "properties"):
            if key in KEYWORDS:
                try:
                    found = found.meet(KEYWORDS[key](self, place, schema))
                except TooLarge as error:
                    raise SchemaFault(error.message, str(place.below(key))) from error
        return self._unevaluated(place, schema, found)

    def _unevaluated(self, place: Place, schema: dict[str, Any], values: Values) -> Values:
        if "unevaluatedItems" in schema:
            rest = self.formula(place, "unevaluatedItems")
            arrays = tuple(_items_beyond(shape, rest) for shape in values.arrays)
            values = replace(values, arrays=arrays)
        if "unevaluatedProperties" in schema:
            rest = self.formula(place, "unevaluatedProperties")
            objects = tuple(_members_beyond(shape, rest) for shape in values.objects)
            values = replace(values, objects=objects)
        return values

    def requiring(self, names: list[str]) -> Values:
        """All values, objects among them only with these members."""
        named = tuple(Property(name, ANYTHING, is_required=True) for name in names)
        return replace(ALL, objects=(Objects(named=named),))

    def lacking(self, name: str) -> Values:
        """Objects without a member, and no other values... and all values that are no objects."""
        return replace(ALL, objects=(Objects(named=(Property(name, NOTHING, False),)),))

    def any_of(self, formulas: list[Formula]) -> Values:
        """Values of at least one formula.

        Beside ``unevaluated...``, all sets of branches are alternatives of their own: each branch
        that holds adds to what was looked at.
        """
        found = NONE
        for formula in formulas:
            found = found.join(self.values(formula))
        if not self.document.has_unevaluated:
            return found
        if len(formulas) > MAX_BRANCHES:
            raise TooLarge(f"over {MAX_BRANCHES} alternatives beside unevaluated members")
        for size in range(2, len(formulas) + 1):
            for chosen in combinations(formulas, size):
                met = ALL
                for formula in chosen:
                    met = met.meet(self.values(formula))
                found = found.join(replace(NONE, arrays=met.arrays, objects=met.objects))
        return found

    def one_of(self, formulas: list[Formula]) -> Values:
        """Values of exactly one formula; only formulas that may overlap are taken off."""
        found = NONE
        for index, formula in enumerate(formulas):
            others = formulas[:index] + formulas[index + 1 :]
            overlapping = [one for one in others if not self.is_empty(both(formula, one))]
            exact = self.values(formula)
            for one in overlapping:
                exact = exact.meet(self.values(negated(one)))
            found = found.join(exact)
        return found

    def is_empty(self, formula: Formula, depth: int = LOOK_DEPTH) -> bool:
        """Whether a formula certainly has no values; False may also mean that nobody knows."""
        if formula in (ANYTHING, NOTHING):
            return formula == NOTHING
        if depth == 0 or formula in self._under_way:
            return False
        key = (formula, depth)
        if key not in self._empty:
            self._empty[key] = False
            self._empty[key] = self._has_nothing(self.values(formula), depth)
        return self._empty[key]

    def _has_nothing(self, values: Values, depth: int) -> bool:
        if values.has_null or values.booleans or not values.numbers.is_empty:
            return False
        if not values.strings.is_empty:
            return False
        return all(self._no_array(shape, depth) for shape in values.arrays) and all(
            self._no_object(shape, depth) for shape in values.objects
        )

    def _no_array(self, shape: Arrays, depth: int) -> bool:
        return any(
            self.is_empty(shape.item(index), depth - 1) for index in range(min(shape.low, 64))
        )

    def _no_object(self, shape: Objects, depth: int) -> bool:
        return any(one.is_required and self.is_empty(one.formula, depth - 1) for one in shape.named)


def place_of(formula: Formula) -> str:
    """Path of the first schema that a formula names; empty if it names none."""
    match formula:
        case Schema(place):
            return str(place)
        case Not(part):
            return place_of(part)
        case Every(parts) | Either(parts):
            return next((path for part in parts if (path := place_of(part))), "")
    return ""


def _items_beyond(shape: Arrays, rest: Formula) -> Arrays:
    """The shape with a formula for the items that no keyword has looked at."""
    if shape.evaluated is None:
        return shape
    allowed = either(rest, *shape.evaluated_by)
    count = max(len(shape.prefix), shape.evaluated)
    prefix = tuple(
        shape.item(i) if i < shape.evaluated else both(shape.item(i), allowed) for i in range(count)
    )
    return replace(shape, prefix=prefix, rest=both(shape.rest, allowed), evaluated=None)


def _members_beyond(shape: Objects, rest: Formula) -> Objects:
    """The shape with a formula for the members that no keyword has looked at."""
    named = tuple(
        one if shape.looked_at.accepts(one.name) else replace(one, formula=both(one.formula, rest))
        for one in shape.named
    )
    others = []
    for dfa, formula in shape.others:
        for part, condition in (
            (intersection(dfa, shape.looked_at), formula),
            (difference(dfa, shape.looked_at), both(formula, rest)),
        ):
            if not part.is_empty:
                others.append((part, condition))
    return replace(shape, named=named, others=tuple(others), looked_at=EVERYTHING)
