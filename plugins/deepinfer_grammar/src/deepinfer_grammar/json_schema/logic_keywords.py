"""What do keywords that combine schemas ask for?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deepinfer_grammar.json_schema.formulas import Schema, negated
from deepinfer_grammar.json_schema.keyword_values import Keyword, list_in
from deepinfer_grammar.json_schema.values import ALL, NONE, Values

if TYPE_CHECKING:
    from deepinfer_grammar.json_schema.document import Place
    from deepinfer_grammar.json_schema.meaning import Meaning

__all__ = [
    "all_of_keyword",
    "any_of_keyword",
    "if_keyword",
    "not_keyword",
    "one_of_keyword",
    "reference_keyword",
]


def all_of_keyword(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    """``allOf``."""
    found = ALL
    for index in range(len(list_in(schema["allOf"], place, "allOf"))):
        found = found.meet(meaning.values(meaning.formula(place, "allOf", index)))
    return found


def any_of_keyword(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    """``anyOf``."""
    options = range(len(list_in(schema["anyOf"], place, "anyOf")))
    return meaning.any_of([meaning.formula(place, "anyOf", index) for index in options])


def one_of_keyword(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    """``oneOf``."""
    options = range(len(list_in(schema["oneOf"], place, "oneOf")))
    return meaning.one_of([meaning.formula(place, "oneOf", index) for index in options])


def not_keyword(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    """``not``."""
    return meaning.values(negated(meaning.formula(place, "not")))


def if_keyword(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    """``if``."""
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


def reference_keyword(key: str) -> Keyword:
    """$ref or $dynamicRef."""

    def read(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
        return meaning.values(Schema(meaning.document.resolve(place, key)))

    return read
