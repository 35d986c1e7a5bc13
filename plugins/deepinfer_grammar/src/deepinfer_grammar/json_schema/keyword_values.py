"""What may stand behind each keyword, and what is said if something else does?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from deepinfer_grammar.errors import SchemaFault, TextFault
from deepinfer_grammar.json_schema.values import ALL, Values
from deepinfer_grammar.regular.determinise import automaton
from deepinfer_grammar.regular.dfa import EVERYTHING, Dfa
from deepinfer_grammar.regular.syntax import parse
from deepinfer_grammar.regular.tree import Concatenation, Language

if TYPE_CHECKING:
    from deepinfer_grammar.json_schema.document import Place
    from deepinfer_grammar.json_schema.meaning import Meaning

__all__ = [
    "Keyword",
    "count_at",
    "fault",
    "list_in",
    "names_in",
    "number_at",
    "only",
    "pattern_language",
    "schemas_in",
]

MAX_COUNT = 10**18
"""No text has so many characters, items or members."""

Keyword = Callable[["Meaning", "Place", dict[str, Any]], Values]
"""From a schema with the keyword in it to the values that the keyword allows."""


def fault(what: str, place: Place, *steps: str | int) -> SchemaFault:
    """An error about a keyword."""
    return SchemaFault(what, str(place.below(*steps)))


def only(kind: str, values: Values) -> Values:
    """Values of one type that are allowed, and all of the other types."""
    return replace(ALL, **{kind: getattr(values, kind)})


def number_at(schema: dict[str, Any], key: str, place: Place) -> Decimal:
    """The number of a keyword."""
    value = schema[key]
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise fault("must be a number", place, key)
    return Decimal(value)


def count_at(schema: dict[str, Any], key: str, place: Place) -> int:
    """The whole number >= 0 of a keyword."""
    value = schema[key]
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise fault("must be a whole number", place, key)
    # Before anybody writes out the zeros that an exponent stands for.
    if not -MAX_COUNT < value < MAX_COUNT:
        raise fault(f"must be below {MAX_COUNT}", place, key)
    if value != int(value):
        raise fault("must be a whole number", place, key)
    if value < 0:
        raise fault("must not be negative", place, key)
    return int(value)


def names_in(value: Any, place: Place, *steps: str | int) -> list[str]:
    """A list of names, each once."""
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise fault("must be a list of names", place, *steps)
    return list(dict.fromkeys(value))


def schemas_in(value: Any, place: Place, *steps: str | int) -> dict[str, Any]:
    """An object of schemas."""
    if not isinstance(value, dict):
        raise fault("must be an object of schemas", place, *steps)
    return value


def list_in(value: Any, place: Place, *steps: str | int) -> list[Any]:
    """A list of schemas, at least one."""
    if not isinstance(value, list) or not value:
        raise fault("must be a list of at least one schema", place, *steps)
    return value


def pattern_language(text: Any, place: Place, *steps: str | int) -> Dfa:
    """Texts in which a pattern is found."""
    if not isinstance(text, str):
        raise fault("must be a regular expression", place, *steps)
    try:
        anything = Language(EVERYTHING)
        return automaton(Concatenation((anything, parse(text, "schema"), anything)))
    except TextFault as error:
        raise SchemaFault(error.message, str(place.below(*steps)), hint=error.hint) from error
