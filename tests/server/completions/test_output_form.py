"""Which words of a body ask for which grammar?"""

from typing import Any

import pytest
from deepinfer_core.engine.grammar_request import GrammarRequest
from deepinfer_core.errors import RequestError
from deepinfer_core.server.completions.bodies import read_completion

SCHEMA = {"type": "object"}
TAG = {"type": "structural_tag", "format": {"type": "any_text"}}


def grammar(**fields: Any) -> GrammarRequest | None:
    return read_completion({"prompt": "a", **fields}).params.grammar_request


def of(kind: str, text: Any = "") -> GrammarRequest:
    return GrammarRequest(kind=kind, grammar=text)


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"grammar": {"kind": "regex", "grammar": "a"}}, of("regex", "a")),
        ({"so_args": {"schema_type": "json", "schema": SCHEMA}}, of("json_schema", SCHEMA)),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, of("json_object")),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
            of("json_schema", SCHEMA),
        ),
        ({"response_format": {"type": "regex", "regex": "a"}}, of("regex", "a")),
        ({"response_format": TAG}, of("structural_tag", TAG)),
        ({"guided_json": SCHEMA}, of("json_schema", SCHEMA)),
        ({"guided_json": "{}"}, of("json_schema", "{}")),
        ({"guided_regex": "a"}, of("regex", "a")),
        ({"guided_choice": ["a", "b"]}, of("choice", ["a", "b"])),
        ({"guided_grammar": 'root ::= "a"'}, of("ebnf", 'root ::= "a"')),
        ({"structured_outputs": {"json": SCHEMA}}, of("json_schema", SCHEMA)),
        ({"structured_outputs": {"json_object": True}}, of("json_object")),
        ({"structured_outputs": {"json_object": False}}, None),
        ({"structured_outputs": {"regex": "a"}}, of("regex", "a")),
        ({"structured_outputs": {"choice": ["a"]}}, of("choice", ["a"])),
        ({"structured_outputs": {"grammar": "root ::= a"}}, of("ebnf", "root ::= a")),
        ({"structured_outputs": {"structural_tag": TAG}}, of("structural_tag", TAG)),
        ({"structured_outputs": {}}, None),
        ({"json_schema": "{}"}, of("json_schema", "{}")),
        ({"regex": "a"}, of("regex", "a")),
        ({"ebnf": "root ::= a"}, of("ebnf", "root ::= a")),
        ({"structural_tag": TAG}, of("structural_tag", TAG)),
        ({"regex": "a", "response_format": {"type": "text"}}, of("regex", "a")),
        ({}, None),
    ],
)
def test_words_of_every_interface_ask_for_a_grammar(
    fields: dict[str, Any], wanted: GrammarRequest | None
) -> None:
    assert grammar(**fields) == wanted


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"guided_json": 5}, "guided_json is 5"),
        ({"guided_json": False}, "guided_json is False"),
        ({"guided_regex": ["a"]}, "guided_regex is"),
        ({"guided_choice": {"a": 1}}, "guided_choice is"),
        ({"ebnf": {}}, "ebnf is"),
        ({"response_format": "json"}, "response_format is 'json'"),
        ({"response_format": {}}, "response_format.type is None"),
        ({"response_format": {"type": "poem"}}, "response_format.type is 'poem'"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema is None"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {}}},
            "response_format.json_schema.schema is None",
        ),
        ({"response_format": {"type": "regex"}}, "response_format.regex is None"),
        ({"structured_outputs": 1}, "structured_outputs is 1"),
        ({"structured_outputs": {"poem": 1}}, "structured_outputs has 'poem'"),
        ({"structured_outputs": {"json_object": 1}}, "structured_outputs.json_object is 1"),
        ({"structured_outputs": {"regex": 1}}, "structured_outputs.regex is 1"),
        ({"so_args": "a"}, "so_args is str"),
    ],
)
def test_a_word_of_another_type_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(RequestError) as caught:
        grammar(**fields)
    assert named in caught.value.message


REGEX = {"kind": "regex", "grammar": "a"}
PUBLISHED = {"schema_type": "regex", "schema": "a"}


@pytest.mark.parametrize(
    "fields",
    [
        {"regex": "a", "ebnf": "root ::= a"},
        {"grammar": REGEX, "guided_regex": "a"},
        {"so_args": PUBLISHED, "response_format": {"type": "json_object"}},
        {"structured_outputs": {"regex": "a", "choice": ["a"]}},
        {"grammar": REGEX, "so_args": PUBLISHED},
    ],
)
def test_two_of_them_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        grammar(**fields)
    assert "give one" in (caught.value.hint or "")
