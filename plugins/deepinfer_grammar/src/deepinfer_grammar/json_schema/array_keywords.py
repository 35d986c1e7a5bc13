"""What do keywords about arrays ask for?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deepinfer_grammar.json_schema.formulas import ANYTHING
from deepinfer_grammar.json_schema.keyword_values import Keyword, count_at, fault, list_in, only
from deepinfer_grammar.json_schema.shapes import Arrays, Counted
from deepinfer_grammar.json_schema.values import ALL, Values

if TYPE_CHECKING:
    from deepinfer_grammar.json_schema.document import Place
    from deepinfer_grammar.json_schema.meaning import Meaning

__all__ = [
    "additional_items_keyword",
    "contains_keyword",
    "item_count_keyword",
    "items_keyword",
    "prefix_keyword",
    "unique_keyword",
]


def items_keyword(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    """``items``."""
    if isinstance(schema["items"], list):
        return prefix_keyword(meaning, place, schema, "items")
    count = len(schema["prefixItems"]) if isinstance(schema.get("prefixItems"), list) else 0
    rest = meaning.formula(place, "items")
    shape = Arrays(prefix=(ANYTHING,) * count, rest=rest, evaluated=None)
    return only("arrays", Values(arrays=(shape,)))


def prefix_keyword(
    meaning: Meaning, place: Place, schema: dict[str, Any], key: str = "prefixItems"
) -> Values:
    """``prefixItems``."""
    options = list_in(schema[key], place, key) if schema[key] or key != "items" else []
    prefix = tuple(meaning.formula(place, key, index) for index in range(len(options)))
    return only("arrays", Values(arrays=(Arrays(prefix=prefix, evaluated=len(prefix)),)))


def additional_items_keyword(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    """``additionalItems``."""
    if not isinstance(schema.get("items"), list):
        return ALL
    skipped = (ANYTHING,) * len(schema["items"])
    rest = meaning.formula(place, "additionalItems")
    return only("arrays", Values(arrays=(Arrays(prefix=skipped, rest=rest, evaluated=None),)))


def item_count_keyword(key: str) -> Keyword:
    """MinItems or maxItems."""

    def read(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
        count = count_at(schema, key, place)
        shape = Arrays(low=count) if key == "minItems" else Arrays(high=count)
        return only("arrays", Values(arrays=(shape,)))

    return read


def unique_keyword(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    """``uniqueItems``."""
    value = schema["uniqueItems"]
    if not isinstance(value, bool):
        raise fault("must be true or false", place, "uniqueItems")
    if not value:
        return ALL
    path = str(place.below("uniqueItems"))
    return only("arrays", Values(arrays=(Arrays(unique_at=path),)))


def contains_keyword(meaning: Meaning, place: Place, schema: dict[str, Any]) -> Values:
    """``contains``."""
    formula = meaning.formula(place, "contains")
    low = count_at(schema, "minContains", place) if "minContains" in schema else 1
    high = count_at(schema, "maxContains", place) if "maxContains" in schema else None
    counted = () if low == 0 and high is None else (Counted(0, formula, low, high),)
    shape = Arrays(counted=counted, evaluated_by=(formula,))
    return only("arrays", Values(arrays=(shape,)))
