"""What do keywords about objects ask for?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deepinfer_grammar.json_schema.formulas import ANYTHING, NOTHING, Formula, both
from deepinfer_grammar.json_schema.keyword_values import (
    Keyword,
    count_at,
    fault,
    names_in,
    only,
    pattern_language,
    schemas_in,
)
from deepinfer_grammar.json_schema.shapes import Objects, Property
from deepinfer_grammar.json_schema.values import ALL, Values
from deepinfer_grammar.regular.dfa import (
    EMPTY,
    EVERYTHING,
    Dfa,
    difference,
    inverse,
    of_texts,
    unite,
)

if TYPE_CHECKING:
    from deepinfer_grammar.json_schema.document import Place
    from deepinfer_grammar.json_schema.meaning import Meaning

__all__ = [
    "dependent_keyword",
    "members_keyword",
    "property_count_keyword",
    "property_names_keyword",
    "required_keyword",
]


def members_keyword(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    """``properties``, ``patternProperties`` and ``additionalProperties`` together."""
    listed = schemas_in(schema.get("properties", {}), place, "properties")
    patterns = schemas_in(schema.get("patternProperties", {}), place, "patternProperties")
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
    return only("objects", Values(objects=(shape,)))


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


def required_keyword(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    """``required``."""
    if isinstance(schema["required"], bool):
        raise fault("must be a list of names", place, "required")
    return meaning.requiring(names_in(schema["required"], place, "required"))


def property_names_keyword(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    """``propertyNames``."""
    strings = meaning.values(meaning.formula(place, "propertyNames")).strings.exactly()
    parts = ((strings, ANYTHING), (inverse(strings), NOTHING))
    others = tuple(part for part in parts if not part[0].is_empty)
    return only("objects", Values(objects=(Objects(others=others),)))


def property_count_keyword(key: str) -> Keyword:
    """MinProperties or maxProperties."""

    def read(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
        count = count_at(schema, key, place)
        shape = Objects(low=count) if key == "minProperties" else Objects(high=count)
        return only("objects", Values(objects=(shape,)))

    return read


def dependent_keyword(key: str) -> Keyword:
    """``dependentRequired``, ``dependentSchemas`` and the older ``dependencies``."""

    def read(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
        found = ALL
        for name, value in schemas_in(schema[key], place, key).items():
            if isinstance(value, list) and key != "dependentSchemas":
                then = meaning.requiring(names_in(value, place, key, name))
            elif key == "dependentRequired":
                raise fault("must be a list of names", place, key, name)
            else:
                then = meaning.values(meaning.formula(place, key, name))
            present = meaning.requiring([name]).meet(then)
            found = found.meet(present.join(meaning.lacking(name)))
        return found

    return read
