"""Does a schema that matches nothing say at which keyword, and why?"""

import json
from typing import Any

import pytest
from deepinfer_grammar.errors import SchemaFault
from deepinfer_grammar.json_schema.compile import schema_rules
from deepinfer_grammar.json_schema.nothing import impossible_place
from deepinfer_grammar.rules import pruned

BEFORE = "no value meets this"
CONTAINERS = "no array or object"
CLOSED = {"type": "object", "additionalProperties": False, "minProperties": 1}


@pytest.mark.parametrize(
    ("schema", "path", "why"),
    [
        ({"type": "string", "pattern": "^a$", "minLength": 2}, "#/minLength", BEFORE),
        (
            {"pattern": "^(aa)*$", "minLength": 3, "type": "string", "maxLength": 3},
            "#/maxLength", BEFORE,
        ),
        ({"const": "x" * 3000, "maxLength": 2999}, "#/maxLength", BEFORE),
        ({"type": "string", "format": "date", "maxLength": 9}, "#/maxLength", BEFORE),
        (
            {"type": "object", "required": ["a"], "properties": {"a": False}},
            "#/properties/a", "this member must be there",
        ),
        (CLOSED, "#/minProperties", CONTAINERS),
        (
            {"type": "object", "properties": {"k": CLOSED}, "required": ["k"]},
            "#/properties/k/minProperties", CONTAINERS,
        ),
        (
            {"type": "array", "uniqueItems": True, "items": {"type": "boolean"}, "minItems": 3},
            "#/minItems", CONTAINERS,
        ),
        ({"type": "array", "minItems": 2, "items": False}, "#/items", CONTAINERS),
    ],
)  # fmt: skip
def test_what_matches_nothing_is_told_at_the_keyword_that_leaves_nothing(
    schema: dict[str, Any], path: str, why: str
) -> None:
    text = json.dumps(schema)
    assert pruned(schema_rules(text)) is None
    found, reason = impossible_place(text)
    assert (found, reason[: len(why)]) == (path, why)


@pytest.mark.parametrize("bound", [20, 25, 40, 64, 255, 10_000])
def test_a_bound_above_the_shortest_text_of_a_format_leaves_some(bound: int) -> None:
    for name in ("date-time", "time", "email", "uri", "regex"):
        schema = {"type": "string", "format": name, "minLength": 6, "maxLength": bound}
        assert pruned(schema_rules(json.dumps(schema))) is not None, name


def test_an_optional_member_is_never_silently_impossible() -> None:
    when = {"type": "string", "format": "date-time", "minLength": 20_000}
    with pytest.raises(SchemaFault, match="#/properties/when/minLength"):
        schema_rules(json.dumps({"type": "object", "properties": {"when": when}}))
