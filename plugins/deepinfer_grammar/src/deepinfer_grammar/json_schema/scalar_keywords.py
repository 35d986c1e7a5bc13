"""What do keywords about values of any type, numbers and strings ask for?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deepinfer_grammar.json_schema.constants import constant_text
from deepinfer_grammar.json_schema.formats import format_strings
from deepinfer_grammar.json_schema.formulas import Constant, Formula
from deepinfer_grammar.json_schema.keyword_values import (
    Keyword,
    count_at,
    fault,
    number_at,
    only,
    pattern_language,
)
from deepinfer_grammar.json_schema.numbers import at_least, at_most, multiples_of
from deepinfer_grammar.json_schema.strings import Strings
from deepinfer_grammar.json_schema.values import ALL, NONE, Values, of_type
from deepinfer_grammar.regular.dfa import of_texts

if TYPE_CHECKING:
    from deepinfer_grammar.json_schema.document import Place
    from deepinfer_grammar.json_schema.meaning import Meaning

__all__ = [
    "bound_keyword",
    "const_keyword",
    "enum_keyword",
    "format_keyword",
    "length_keyword",
    "multiple_of_keyword",
    "pattern_keyword",
    "type_keyword",
]


def type_keyword(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    """``type``."""
    value = schema["type"]
    names = value if isinstance(value, list) else [value]
    found = NONE
    for name in names:
        one = of_type(name) if isinstance(name, str) else None
        if one is None:
            raise fault(f"there is no type {name!r}", place, "type")
        found = found.join(one)
    if not names:
        raise fault("must name at least one type", place, "type")
    return found


def _constant(value: Any, place: Place, *steps: str | int) -> Formula:
    return Constant(constant_text(value))


def const_keyword(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    """``const``."""
    return meaning.values(_constant(schema["const"], place, "const"))


def enum_keyword(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    """``enum``."""
    options = schema["enum"]
    if not isinstance(options, list):
        raise fault("must be a list of values", place, "enum")
    texts = [value for value in options if isinstance(value, str)]
    found = Values(strings=Strings.of(of_texts(texts))) if texts else NONE
    for value in options:
        if not isinstance(value, str):
            found = found.join(meaning.values(_constant(value, place, "enum")))
    return found


def bound_keyword(key: str) -> Keyword:
    """A bound of numbers."""

    def read(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
        if isinstance(schema[key], bool) and key.startswith("exclusive"):
            return ALL  # the older form: a flag of the bound beside it
        bound = number_at(schema, key, place)
        is_strict = key.startswith("exclusive") or schema.get(_FLAGS.get(key, "")) is True
        build = at_least if key.lower().endswith("minimum") else at_most
        return only("numbers", Values(numbers=build(bound, is_strict=is_strict)))

    return read


_FLAGS = {"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}


def multiple_of_keyword(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    """``multipleOf``."""
    step = number_at(schema, "multipleOf", place)
    if step <= 0:
        raise fault("must be above zero", place, "multipleOf")
    return only("numbers", Values(numbers=multiples_of(step)))


def length_keyword(key: str) -> Keyword:
    """A bound on a length."""

    def read(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
        count = count_at(schema, key, place)
        strings = Strings.of(low=count) if key == "minLength" else Strings.of(high=count)
        return only("strings", Values(strings=strings))

    return read


def pattern_keyword(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    """``pattern``."""
    dfa = pattern_language(schema["pattern"], place, "pattern")
    return only("strings", Values(strings=Strings.of(dfa)))


def format_keyword(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    """``format``."""
    name = schema["format"]
    if not isinstance(name, str):
        raise fault("must be a text", place, "format")
    strings = format_strings(name)
    return ALL if strings is None else only("strings", Values(strings=strings))
