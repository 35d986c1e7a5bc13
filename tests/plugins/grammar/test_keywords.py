"""Is each keyword of the table enforced or refused, with its path, and does the page say the same?

Each sample is checked with the jsonschema package first, so that the samples are right.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.interfaces.grammar import GrammarText
from deepinfer_core.testing.contracts.grammar_texts import GRAMMAR_VOCABULARY, encoded, produces
from deepinfer_grammar.errors import SchemaFault
from deepinfer_grammar.front import grammar_rules
from deepinfer_grammar.json_schema.compile import schema_rules
from deepinfer_grammar.json_schema.formats import FORMATS
from deepinfer_grammar.json_schema.keywords import KEYWORDS, NOTES

DOCS = Path(__file__).parents[3] / "docs" / "grammar.md"
LATE = ("unevaluatedItems", "unevaluatedProperties")

SAMPLES: dict[str, tuple[Any, tuple[Any, ...], tuple[Any, ...]]] = {
    "$ref": ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}, (None,), (1, "a")),
    "$dynamicRef": (
        {"$dynamicRef": "#a", "$defs": {"a": {"$dynamicAnchor": "a", "type": "null"}}},
        (None,),
        (1,),
    ),
    "type": ({"type": ["integer", "null"]}, (1, -20, 1.0, None), (1.5, "1", True, [])),
    "enum": ({"enum": ["a", 1, [2], {"b": None}]}, ("a", 1, [2], {"b": None}), ("b", 2, [1], {})),
    "const": ({"const": {"a": [1, "é"]}}, ({"a": [1, "é"]},), ({"a": [1]}, {}, 1)),
    "multipleOf": ({"multipleOf": 0.25}, (0, 0.5, -1.75, 3), (0.1, 1.3)),
    "maximum": ({"maximum": 12.5}, (12.5, -99, 0), (12.6, 100)),
    "exclusiveMaximum": ({"exclusiveMaximum": 0}, (-1, -0.5), (0, 1)),
    "minimum": ({"minimum": -1.5}, (-1.5, 0, 1234), (-1.6, -2)),
    "exclusiveMinimum": ({"exclusiveMinimum": 10}, (10.1, 11), (10, 9)),
    "maxLength": ({"maxLength": 2}, ("", "éé", 123), ("abc",)),
    "minLength": ({"minLength": 2}, ("ab", "\U0001f600b"), ("", "\U0001f600")),
    "pattern": ({"pattern": "^a.*b$"}, ("ab", 'a"b', 1), ("ba", "a")),
    "format": ({"format": "date"}, ("2024-02-29", 1), ("2023-02-29", "a")),
    "prefixItems": ({"prefixItems": [{"type": "null"}]}, ([], [None, 1]), ([1],)),
    "items": ({"items": {"type": "null"}}, ([], [None, None]), ([1], [None, 1])),
    "maxItems": ({"maxItems": 1}, ([], [1]), ([1, 2],)),
    "minItems": ({"minItems": 2}, ([1, 2], [1, 2, 3], {}), ([], [1])),
    "uniqueItems": (
        {"items": {"enum": ["a", "b"]}, "uniqueItems": True},
        ([], ["b", "a"]),
        (["a", "a"],),
    ),
    "contains": ({"contains": {"const": 1}}, ([1], [2, 1]), ([], [2])),
    "minContains": ({"contains": {"const": 1}, "minContains": 2}, ([1, 2, 1],), ([1], [1, 2])),
    "maxContains": ({"contains": {"const": 1}, "maxContains": 1}, ([1], [2, 1]), ([1, 1], [])),
    "properties": ({"properties": {"a": {"type": "null"}}}, ({"a": None}, {"b": 1}), ({"a": 1},)),
    "patternProperties": ({"patternProperties": {"^a": False}}, ({"b": 1},), ({"ab": 1},)),
    "additionalProperties": (
        {"properties": {"a": {}}, "additionalProperties": False},
        ({}, {"a": 1}),
        ({"b": 1}, {"a": 1, "b": 2}),
    ),
    "required": ({"required": ["b", "a"]}, ({"b": 1, "a": 2}, {"a": 1, "b": 2}), ({}, {"a": 1})),
    "propertyNames": ({"propertyNames": {"maxLength": 1}}, ({"a": 1}, {}), ({"ab": 1},)),
    "maxProperties": ({"maxProperties": 1}, ({}, {"a": 1}), ({"a": 1, "b": 2},)),
    "minProperties": ({"minProperties": 2}, ({"a": 1, "b": 2}, []), ({}, {"a": 1})),
    "dependentRequired": (
        {"dependentRequired": {"a": ["b"]}},
        ({"b": 1}, {"a": 1, "b": 2}),
        ({"a": 1},),
    ),
    "dependentSchemas": (
        {"dependentSchemas": {"a": {"maxProperties": 1}}},
        ({"a": 1}, {"b": 1, "c": 2}),
        ({"a": 1, "b": 2},),
    ),
    "allOf": ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, (3, 12), (2, "a", 3.5)),
    "anyOf": ({"anyOf": [{"const": 1}, {"type": "string"}]}, (1, "a"), (2, None)),
    "oneOf": ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, (1, 2.5, "a"), (3, 0.5)),
    "not": ({"not": {"type": ["object", "string"]}}, (1, [], None), ({}, "a")),
    "if": ({"if": {"const": "a"}, "then": False}, ("b", 1), ("a",)),
    "then": (
        {"if": {"required": ["a"]}, "then": {"required": ["b"]}},
        ({"a": 1, "b": 2}, {"c": 1}),
        ({"a": 1},),
    ),
    "else": ({"if": {"type": "string"}, "else": {"type": "null"}}, ("a", None), (1, [])),
    "unevaluatedItems": (
        {"prefixItems": [{}], "unevaluatedItems": False},
        ([], [1]),
        ([1, 2],),
    ),
    "unevaluatedProperties": (
        {"anyOf": [{"properties": {"a": {"const": 1}}}, {}], "unevaluatedProperties": False},
        ({}, {"a": 1}),
        ({"a": 2}, {"b": 1}),
    ),
}
OLDER: dict[str, tuple[Any, tuple[Any, ...], tuple[Any, ...]]] = {
    "additionalItems": (
        {"items": [{"type": "null"}], "additionalItems": False},
        ([], [None]),
        ([1], [None, 1]),
    ),
    "dependencies": (
        {"dependencies": {"a": ["b"], "c": {"maxProperties": 1}}},
        ({"a": 1, "b": 2}, {"c": 1}),
        ({"a": 1}, {"c": 1, "b": 2}),
    ),
}
"""Keywords of older drafts, which the judge knows under those."""

WRONG: dict[str, tuple[Any, str]] = {
    "type": ({"type": "strin"}, "#/type"),
    "required": ({"properties": {"x": {"required": "a"}}}, "#/properties/x/required"),
    "minLength": ({"items": {"minLength": -1}}, "#/items/minLength"),
    "pattern": ({"pattern": "a(b"}, "#/pattern"),
    "multipleOf": ({"multipleOf": 0}, "#/multipleOf"),
    "$ref": ({"$ref": "#/$defs/gone"}, "#/$ref"),
    "a remote $ref": ({"$ref": "other.json"}, "#/$ref"),
    "a $ref to itself": ({"$ref": "#"}, "#"),
    "back-references": ({"pattern": r"(a)\1"}, "#/pattern"),
    "uniqueItems": ({"uniqueItems": True, "items": {"type": "string"}}, "#/uniqueItems"),
    "not uniqueItems": ({"not": {"uniqueItems": True}}, "#/not/uniqueItems"),
    "anyOf": ({"anyOf": []}, "#/anyOf"),
    "properties": ({"properties": []}, "#/properties"),
    "additionalProperties": ({"additionalProperties": 3}, "#/additionalProperties"),
    "enum": ({"enum": "a"}, "#/enum"),
}


def compact(schema: Any, value: Any) -> bool:
    """Whether the masks let a value through, with and without blanks."""
    from deepinfer_grammar.engines.xgrammar_component import XgrammarGrammar

    component = XgrammarGrammar()
    asked = GrammarText(kind="json_schema", text=json.dumps(schema))
    compiled = component.compile(asked, GRAMMAR_VOCABULARY)
    grammar = component.open(compiled, GRAMMAR_VOCABULARY)
    forms = [json.dumps(value, ensure_ascii=False)]
    forms.append(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    forms.append(json.dumps(value, ensure_ascii=False, indent=2))
    found = {produces(grammar, encoded(form)) for form in forms}
    assert len(found) == 1, forms
    return found.pop()


@pytest.mark.parametrize("keyword", [*SAMPLES, *OLDER])
def test_a_keyword_is_enforced(keyword: str) -> None:
    pytest.importorskip("xgrammar", reason="needs xgrammar")
    jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema, the judge")
    schema, members, others = {**SAMPLES, **OLDER}[keyword]
    draft = jsonschema.Draft7Validator if keyword in OLDER else jsonschema.Draft202012Validator
    judge = draft(schema, format_checker=draft.FORMAT_CHECKER)
    for value in members:
        assert judge.is_valid(value), value
        assert compact(schema, value), value
    for value in others:
        assert not judge.is_valid(value), value
        assert not compact(schema, value), value


def test_every_keyword_of_the_table_has_a_sample() -> None:
    assert set(SAMPLES) | set(OLDER) == {*KEYWORDS, *LATE}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_or_cannot_be_enforced_is_refused_with_its_path(name: str) -> None:
    schema, path = WRONG[name]
    with pytest.raises(SchemaFault) as caught:
        schema_rules(json.dumps(schema))
    assert caught.value.path == path


def test_a_note_asks_for_nothing() -> None:
    schema = dict.fromkeys(sorted(NOTES - {"$id", "id", "$schema", "$anchor"}), "x")
    schema |= {"$defs": {}, "definitions": {}, "type": "null"}
    assert schema_rules(json.dumps(schema)).rules


def test_a_schema_that_is_too_long_is_refused_at_once() -> None:
    text = json.dumps({"enum": ["x" * 1000] * 5300})
    assert len(text) > 5 << 20
    with pytest.raises(SchemaFault, match=r"#/enum: the grammar has 5\d{6} bytes"):
        grammar_rules(GrammarText(kind="json_schema", text=text), GRAMMAR_VOCABULARY)


def test_the_page_lists_the_keywords_as_the_table_has_them() -> None:
    page = DOCS.read_text(encoding="utf-8")
    table = page.partition("## Keywords")[2].partition("\n## ")[0]
    listed = {
        name.strip("`")
        for line in table.splitlines()
        if line.startswith("| `")
        for name in line.split("|")[1].strip().split(", ")
    }
    assert listed == {*KEYWORDS, *LATE, *NOTES}


def test_the_page_lists_the_formats() -> None:
    page = DOCS.read_text(encoding="utf-8")
    section = page.partition("## Formats")[2].partition("\n## ")[0]
    assert sorted(section.split("`")[1::2]) == sorted(FORMATS)
