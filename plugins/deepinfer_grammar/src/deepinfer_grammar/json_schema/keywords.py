"""What does each keyword of JSON Schema ask for?

``KEYWORDS`` is the table that the documentation repeats: a keyword is enforced, or it is a note
that asks for nothing. What is neither is ignored, as the standard says. A keyword whose value is
wrong, or asks for what cannot be enforced, is a ``SchemaFault`` with its path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deepinfer_grammar.json_schema.array_keywords import (
    additional_items_keyword,
    contains_keyword,
    item_count_keyword,
    items_keyword,
    prefix_keyword,
    unique_keyword,
)
from deepinfer_grammar.json_schema.keyword_values import Keyword, count_at
from deepinfer_grammar.json_schema.logic_keywords import (
    all_of_keyword,
    any_of_keyword,
    if_keyword,
    not_keyword,
    one_of_keyword,
    reference_keyword,
)
from deepinfer_grammar.json_schema.object_keywords import (
    dependent_keyword,
    members_keyword,
    property_count_keyword,
    property_names_keyword,
    required_keyword,
)
from deepinfer_grammar.json_schema.scalar_keywords import (
    bound_keyword,
    const_keyword,
    enum_keyword,
    format_keyword,
    length_keyword,
    multiple_of_keyword,
    pattern_keyword,
    type_keyword,
)
from deepinfer_grammar.json_schema.values import ALL, Values

if TYPE_CHECKING:
    from deepinfer_grammar.json_schema.document import Place
    from deepinfer_grammar.json_schema.meaning import Meaning

__all__ = ["KEYWORDS", "NOTES"]

NOTES = frozenset(
    {
        "$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$comment",
        "$vocabulary", "$defs", "definitions", "title", "description", "default", "examples",
        "deprecated", "readOnly", "writeOnly", "contentEncoding", "contentMediaType",
        "contentSchema",
    }
)  # fmt: skip
"""Keywords that ask for nothing."""


def _follows(key: str) -> Keyword:
    """A keyword that another one reads: here only its form is checked."""

    def read(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
        if key in ("minContains", "maxContains"):
            count_at(schema, key, place)
        elif key in ("patternProperties", "additionalProperties"):
            return (
                ALL
                if "properties" in schema or _is_second(key, schema)
                else members_keyword(meaning, place, schema)
            )
        else:
            meaning.formula(place, key)
        return ALL

    return read


def _is_second(key: str, schema: dict[str, Any]) -> bool:
    return key == "additionalProperties" and "patternProperties" in schema


KEYWORDS: dict[str, Keyword] = {
    "$ref": reference_keyword("$ref"),
    "$dynamicRef": reference_keyword("$dynamicRef"),
    "type": type_keyword,
    "enum": enum_keyword,
    "const": const_keyword,
    "multipleOf": multiple_of_keyword,
    "maximum": bound_keyword("maximum"),
    "exclusiveMaximum": bound_keyword("exclusiveMaximum"),
    "minimum": bound_keyword("minimum"),
    "exclusiveMinimum": bound_keyword("exclusiveMinimum"),
    "maxLength": length_keyword("maxLength"),
    "minLength": length_keyword("minLength"),
    "pattern": pattern_keyword,
    "format": format_keyword,
    "prefixItems": prefix_keyword,
    "items": items_keyword,
    "additionalItems": additional_items_keyword,
    "maxItems": item_count_keyword("maxItems"),
    "minItems": item_count_keyword("minItems"),
    "uniqueItems": unique_keyword,
    "contains": contains_keyword,
    "minContains": _follows("minContains"),
    "maxContains": _follows("maxContains"),
    "properties": members_keyword,
    "patternProperties": _follows("patternProperties"),
    "additionalProperties": _follows("additionalProperties"),
    "required": required_keyword,
    "propertyNames": property_names_keyword,
    "maxProperties": property_count_keyword("maxProperties"),
    "minProperties": property_count_keyword("minProperties"),
    "dependentRequired": dependent_keyword("dependentRequired"),
    "dependentSchemas": dependent_keyword("dependentSchemas"),
    "dependencies": dependent_keyword("dependencies"),
    "allOf": all_of_keyword,
    "anyOf": any_of_keyword,
    "oneOf": one_of_keyword,
    "not": not_keyword,
    "if": if_keyword,
    "then": _follows("then"),
    "else": _follows("else"),
}
"""What each keyword allows by itself; ``unevaluatedItems`` and ``unevaluatedProperties`` look at
all others and are read after them."""
