"""What does each keyword of JSON Schema ask for?

``KEYWORDS`` is the table that the documentation repeats: a keyword is enforced, or it is a note
that asks for nothing. What is neither is ignored, as the standard says. A keyword whose value is
wrong, or asks for what cannot be enforced, is a ``SchemaFault`` with its path.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from deepinfer_grammar.errors import SchemaFault, TextFault
from deepinfer_grammar.json_schema.constants import constant_text
from deepinfer_grammar.json_schema.formats import format_strings
from deepinfer_grammar.json_schema.formulas import (
    ANYTHING,
    NOTHING,
    Constant,
    Formula,
    Schema,
    both,
    negated,
)
from deepinfer_grammar.json_schema.numbers import at_least, at_most, multiples_of
from deepinfer_grammar.json_schema.shapes import Arrays, Counted, Objects, Property
from deepinfer_grammar.json_schema.strings import Strings
from deepinfer_grammar.json_schema.values import ALL, NONE, Values, of_type
from deepinfer_grammar.regular.determinise import automaton
from deepinfer_grammar.regular.dfa import (
    EMPTY,
    EVERYTHING,
    Dfa,
    difference,
    inverse,
    of_texts,
    unite,
)
from deepinfer_grammar.regular.syntax import parse
from deepinfer_grammar.regular.tree import Concatenation, Language

if TYPE_CHECKING:
    from deepinfer_grammar.json_schema.document import Place
    from deepinfer_grammar.json_schema.meaning import Meaning

__all__ = ["KEYWORDS", "NOTES", "Keyword"]

Keyword = Callable[["Meaning", "Place", dict[str, Any]], Values]
"""From a schema with the keyword in it to the values that the keyword allows."""

NOTES = frozenset(
    {
        "$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$comment",
        "$vocabulary", "$defs", "definitions", "title", "description", "default", "examples",
        "deprecated", "readOnly", "writeOnly", "contentEncoding", "contentMediaType",
        "contentSchema",
    }
)  # fmt: skip
"""Keywords that ask for nothing."""


def _fault(what: str, place: Place, *steps: str | int) -> SchemaFault:
    return SchemaFault(what, str(place.below(*steps)))


def _only(kind: str, values: Values) -> Values:
    """Values of one type that are allowed, and all of the other types."""
    import dataclasses

    return dataclasses.replace(ALL, **{kind: getattr(values, kind)})


def _number(schema: dict[str, Any], key: str, place: Place) -> Decimal:
    value = schema[key]
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise _fault("must be a number", place, key)
    return Decimal(value)


def _count(schema: dict[str, Any], key: str, place: Place) -> int:
    value = schema[key]
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or value != int(value):
        raise _fault("must be a whole number", place, key)
    if value < 0:
        raise _fault("must not be negative", place, key)
    return int(value)


def _names(value: Any, place: Place, *steps: str | int) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise _fault("must be a list of names", place, *steps)
    return list(dict.fromkeys(value))


def _schemas(value: Any, place: Place, *steps: str | int) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _fault("must be an object of schemas", place, *steps)
    return value


def _list(value: Any, place: Place, *steps: str | int) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise _fault("must be a list of at least one schema", place, *steps)
    return value


def pattern_language(text: Any, place: Place, *steps: str | int) -> Dfa:
    """Texts in which a pattern is found."""
    if not isinstance(text, str):
        raise _fault("must be a regular expression", place, *steps)
    try:
        anything = Language(EVERYTHING)
        return automaton(Concatenation((anything, parse(text, "schema"), anything)))
    except TextFault as error:
        raise SchemaFault(error.message, str(place.below(*steps)), hint=error.hint) from error


def _type(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    value = schema["type"]
    names = value if isinstance(value, list) else [value]
    found = NONE
    for name in names:
        one = of_type(name) if isinstance(name, str) else None
        if one is None:
            raise _fault(f"there is no type {name!r}", place, "type")
        found = found.join(one)
    if not names:
        raise _fault("must name at least one type", place, "type")
    return found


def _constant(value: Any, place: Place, *steps: str | int) -> Formula:
    return Constant(constant_text(value))


def _const(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    return meaning.values(_constant(schema["const"], place, "const"))


def _enum(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    options = schema["enum"]
    if not isinstance(options, list):
        raise _fault("must be a list of values", place, "enum")
    texts = [value for value in options if isinstance(value, str)]
    found = Values(strings=Strings(of_texts(texts))) if texts else NONE
    for value in options:
        if not isinstance(value, str):
            found = found.join(meaning.values(_constant(value, place, "enum")))
    return found


def _bound(key: str) -> Keyword:
    def read(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
        if isinstance(schema[key], bool) and key.startswith("exclusive"):
            return ALL  # the older form: a flag of the bound beside it
        bound = _number(schema, key, place)
        is_strict = key.startswith("exclusive") or schema.get(_FLAGS.get(key, "")) is True
        build = at_least if key.lower().endswith("minimum") else at_most
        return _only("numbers", Values(numbers=build(bound, is_strict=is_strict)))

    return read


_FLAGS = {"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}


def _multiple_of(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    step = _number(schema, "multipleOf", place)
    if step <= 0:
        raise _fault("must be above zero", place, "multipleOf")
    return _only("numbers", Values(numbers=multiples_of(step)))


def _length(key: str) -> Keyword:
    def read(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
        count = _count(schema, key, place)
        strings = Strings(low=count) if key == "minLength" else Strings(high=count)
        return _only("strings", Values(strings=strings))

    return read


def _pattern(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    dfa = pattern_language(schema["pattern"], place, "pattern")
    return _only("strings", Values(strings=Strings(dfa)))


def _format(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    name = schema["format"]
    if not isinstance(name, str):
        raise _fault("must be a text", place, "format")
    strings = format_strings(name)
    return ALL if strings is None else _only("strings", Values(strings=strings))


def _items(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    if isinstance(schema["items"], list):
        return _prefix(meaning, place, schema, "items")
    count = len(schema["prefixItems"]) if isinstance(schema.get("prefixItems"), list) else 0
    rest = meaning.formula(place, "items")
    shape = Arrays(prefix=(ANYTHING,) * count, rest=rest, evaluated=None)
    return _only("arrays", Values(arrays=(shape,)))


def _prefix(
    meaning: Meaning, place: Place, schema: dict[str, Any], key: str = "prefixItems"
) -> Values:
    options = _list(schema[key], place, key) if schema[key] or key != "items" else []
    prefix = tuple(meaning.formula(place, key, index) for index in range(len(options)))
    return _only("arrays", Values(arrays=(Arrays(prefix=prefix, evaluated=len(prefix)),)))


def _additional_items(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    if not isinstance(schema.get("items"), list):
        return ALL
    skipped = (ANYTHING,) * len(schema["items"])
    rest = meaning.formula(place, "additionalItems")
    return _only("arrays", Values(arrays=(Arrays(prefix=skipped, rest=rest, evaluated=None),)))


def _item_count(key: str) -> Keyword:
    def read(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
        count = _count(schema, key, place)
        shape = Arrays(low=count) if key == "minItems" else Arrays(high=count)
        return _only("arrays", Values(arrays=(shape,)))

    return read


def _unique(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    value = schema["uniqueItems"]
    if not isinstance(value, bool):
        raise _fault("must be true or false", place, "uniqueItems")
    if not value:
        return ALL
    path = str(place.below("uniqueItems"))
    return _only("arrays", Values(arrays=(Arrays(unique_at=path),)))


def _contains(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    formula = meaning.formula(place, "contains")
    low = _count(schema, "minContains", place) if "minContains" in schema else 1
    high = _count(schema, "maxContains", place) if "maxContains" in schema else None
    counted = () if low == 0 and high is None else (Counted(0, formula, low, high),)
    shape = Arrays(counted=counted, evaluated_by=(formula,))
    return _only("arrays", Values(arrays=(shape,)))


def _members(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    """``properties``, ``patternProperties`` and ``additionalProperties`` together."""
    listed = _schemas(schema.get("properties", {}), place, "properties")
    patterns = _schemas(schema.get("patternProperties", {}), place, "patternProperties")
    languages = [
        (pattern_language(text, place, "patternProperties", text),
         meaning.formula(place, "patternProperties", text))
        for text in patterns
    ]  # fmt: skip
    has_rest = "additionalProperties" in schema
    rest = meaning.formula(place, "additionalProperties") if has_rest else ANYTHING
    others = _divided(languages, rest)
    named = []
    for name in listed:
        matching = [formula for dfa, formula in languages if dfa.accepts(name)]
        formula = both(meaning.formula(place, "properties", name), *matching)
        named.append(Property(name, formula, is_required=False, is_listed=True))
    looked_at = EVERYTHING if has_rest else _looked_at(meaning, list(listed), languages)
    shape = Objects(named=tuple(named), others=others, looked_at=looked_at)
    return _only("objects", Values(objects=(shape,)))


def _looked_at(meaning: Meaning, names: list[str], patterns: list[tuple[Dfa, Formula]]) -> Dfa:
    if not meaning.document.has_unevaluated:
        return EMPTY
    found = of_texts(names) if names else EMPTY
    for dfa, _ in patterns:
        found = unite(found, dfa)
    return found


def _divided(patterns: list[tuple[Dfa, Formula]], rest: Formula) -> tuple[tuple[Dfa, Formula], ...]:
    """All names, divided by which patterns they match."""
    found: list[tuple[Dfa, Formula, bool]] = [(EVERYTHING, ANYTHING, False)]
    for dfa, formula in patterns:
        following = []
        for part, known, is_matched in found:
            outside = difference(part, dfa)
            inside = difference(part, inverse(dfa))
            if not inside.is_empty:
                following.append((inside, both(known, formula), True))
            if not outside.is_empty:
                following.append((outside, known, is_matched))
        found = following
    merged: dict[Formula, Dfa] = {}
    for dfa, formula, is_matched in found:
        final = formula if is_matched else rest
        merged[final] = unite(merged[final], dfa) if final in merged else dfa
    return tuple((dfa, formula) for formula, dfa in merged.items())


def _required(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    if isinstance(schema["required"], bool):
        raise _fault("must be a list of names", place, "required")
    return meaning.requiring(_names(schema["required"], place, "required"))


def _property_names(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    strings = meaning.values(meaning.formula(place, "propertyNames")).strings.counted()
    parts = ((strings, ANYTHING), (inverse(strings), NOTHING))
    others = tuple(part for part in parts if not part[0].is_empty)
    return _only("objects", Values(objects=(Objects(others=others),)))


def _property_count(key: str) -> Keyword:
    def read(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
        count = _count(schema, key, place)
        shape = Objects(low=count) if key == "minProperties" else Objects(high=count)
        return _only("objects", Values(objects=(shape,)))

    return read


def _dependent(key: str) -> Keyword:
    """``dependentRequired``, ``dependentSchemas`` and the older ``dependencies``."""

    def read(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
        found = ALL
        for name, value in _schemas(schema[key], place, key).items():
            if isinstance(value, list) and key != "dependentSchemas":
                then = meaning.requiring(_names(value, place, key, name))
            elif key == "dependentRequired":
                raise _fault("must be a list of names", place, key, name)
            else:
                then = meaning.values(meaning.formula(place, key, name))
            present = meaning.requiring([name]).meet(then)
            found = found.meet(present.join(meaning.lacking(name)))
        return found

    return read


def _all_of(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    found = ALL
    for index in range(len(_list(schema["allOf"], place, "allOf"))):
        found = found.meet(meaning.values(meaning.formula(place, "allOf", index)))
    return found


def _any_of(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    options = range(len(_list(schema["anyOf"], place, "anyOf")))
    return meaning.any_of([meaning.formula(place, "anyOf", index) for index in options])


def _one_of(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    options = range(len(_list(schema["oneOf"], place, "oneOf")))
    return meaning.one_of([meaning.formula(place, "oneOf", index) for index in options])


def _not(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    return meaning.values(negated(meaning.formula(place, "not")))


def _if(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    condition = meaning.formula(place, "if")
    if "then" not in schema and "else" not in schema and not meaning.document.has_unevaluated:
        return ALL
    found = NONE
    for key, formula in (("then", condition), ("else", negated(condition))):
        branch = meaning.values(formula)
        if key in schema:
            branch = branch.meet(meaning.values(meaning.formula(place, key)))
        found = found.join(branch)
    return found


def _reference(key: str) -> Keyword:
    def read(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
        return meaning.values(Schema(meaning.document.resolve(place, key)))

    return read


def _follows(key: str) -> Keyword:
    """A keyword that another one reads: here only its form is checked."""

    def read(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
        if key in ("minContains", "maxContains"):
            _count(schema, key, place)
        elif key in ("patternProperties", "additionalProperties"):
            return (
                ALL
                if "properties" in schema or _is_second(key, schema)
                else _members(meaning, place, schema)
            )
        else:
            meaning.formula(place, key)
        return ALL

    return read


def _is_second(key: str, schema: dict[str, Any]) -> bool:
    return key == "additionalProperties" and "patternProperties" in schema


KEYWORDS: dict[str, Keyword] = {
    "$ref": _reference("$ref"),
    "$dynamicRef": _reference("$dynamicRef"),
    "type": _type,
    "enum": _enum,
    "const": _const,
    "multipleOf": _multiple_of,
    "maximum": _bound("maximum"),
    "exclusiveMaximum": _bound("exclusiveMaximum"),
    "minimum": _bound("minimum"),
    "exclusiveMinimum": _bound("exclusiveMinimum"),
    "maxLength": _length("maxLength"),
    "minLength": _length("minLength"),
    "pattern": _pattern,
    "format": _format,
    "prefixItems": _prefix,
    "items": _items,
    "additionalItems": _additional_items,
    "maxItems": _item_count("maxItems"),
    "minItems": _item_count("minItems"),
    "uniqueItems": _unique,
    "contains": _contains,
    "minContains": _follows("minContains"),
    "maxContains": _follows("maxContains"),
    "properties": _members,
    "patternProperties": _follows("patternProperties"),
    "additionalProperties": _follows("additionalProperties"),
    "required": _required,
    "propertyNames": _property_names,
    "maxProperties": _property_count("maxProperties"),
    "minProperties": _property_count("minProperties"),
    "dependentRequired": _dependent("dependentRequired"),
    "dependentSchemas": _dependent("dependentSchemas"),
    "dependencies": _dependent("dependencies"),
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
    "then": _follows("then"),
    "else": _follows("else"),
}
"""What each keyword allows by itself; ``unevaluatedItems`` and ``unevaluatedProperties`` look at
all others and are read after them."""
