"""Do strict schemas of official clients survive, definitions and references included?"""

from typing import Any

import pytest
from deepinfer_recipe_bridge.chat import Chat
from deepinfer_recipe_bridge.errors import BadRequest
from deepinfer_recipe_bridge.options import ChatOptions, ResponsesOptions
from deepinfer_recipe_bridge.responses import Responses
from deepinfer_recipe_bridge.strict_schemas import MAX_WRITTEN_OUT, strict_form
from grammars import allows
from scripted import EOS, MODEL, ScriptedEngine, ask, tokens_of

A = {"type": "object", "properties": {"x": {"type": "integer"}}}
NESTED = {
    "type": "object",
    "$defs": {"A": A},
    "properties": {
        "a": {"$ref": "#/$defs/A"},
        "l": {"type": "array", "items": {"$ref": "#/$defs/A"}},
        "o": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]},
    },
}
RIGHT = '{"a": {"x": 1}, "l": [{"x": 2}], "o": {"x": 3}}'
WRONG = '{"a": {"x": 1}, "l": [{"x": 2}], "o": {"x": "3"}}'


@pytest.mark.parametrize("key", ["$defs", "definitions", "$def"])
def test_definitions_of_any_name_are_kept_under_one(key: str) -> None:
    schema = {"type": "object", key: {"A": A}, "properties": {"a": {"$ref": f"#/{key}/A"}}}
    wanted = {"type": "object", "properties": {"a": {"$ref": "#/$def/A"}}, "$def": {"A": A}}
    assert strict_form(schema) == wanted


def test_references_inside_any_of_are_written_out() -> None:
    found = strict_form(NESTED)["properties"]
    assert found["o"] == {"anyOf": [A, {"type": "null"}]}
    assert found["a"] == {"$ref": "#/$def/A"}


def test_what_is_written_out_keeps_what_stands_beside_it() -> None:
    branch = {"$ref": "#/$defs/A", "description": "d"}
    schema = {"type": "object", "$defs": {"A": A}, "properties": {"o": {"anyOf": [branch]}}}
    assert strict_form(schema)["properties"]["o"]["anyOf"] == [A | {"description": "d"}]


def test_a_recursive_type_is_not_written_out_for_ever() -> None:
    node = {
        "type": "object",
        "properties": {"next": {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]}},
    }
    schema = {"type": "object", "$defs": {"N": node}, "properties": {"n": {"$ref": "#/$defs/N"}}}
    inner = strict_form(schema)["$def"]["N"]["properties"]["next"]["anyOf"][0]
    assert inner == {"$ref": "#/$def/N"}


def test_data_is_not_taken_for_schemas() -> None:
    schema = {"type": "object", "properties": {"c": {"const": {"$ref": "#/$defs/A"}}}}
    assert strict_form(schema) == schema


@pytest.mark.parametrize("value", [None, 3, "x", [], True])
def test_what_is_no_object_is_left_alone(value: Any) -> None:
    assert strict_form(value) == value


def doubling(depth: int) -> dict[str, Any]:
    """A schema of ``depth`` definitions, each of which holds the next one twice."""
    definitions: dict[str, Any] = {f"D{depth}": {"type": "null"}}
    for level in range(depth):
        definitions[f"D{level}"] = {"anyOf": [{"$ref": f"#/$defs/D{level + 1}"}] * 2}
    return {"type": "object", "$defs": definitions, "properties": {"d": {"$ref": "#/$defs/D0"}}}


def test_what_would_grow_without_bound_is_refused() -> None:
    # D(i) stands for 2^(10 - i) - 1 pairs of references; all of them for less than 2^11.
    assert MAX_WRITTEN_OUT < 2**11
    strict_form(doubling(8))
    with pytest.raises(BadRequest, match="references inside anyOf"):
        strict_form(doubling(60))


def test_the_schema_itself_is_not_changed() -> None:
    before = repr(NESTED)
    strict_form(NESTED)
    assert repr(NESTED) == before


def test_nested_models_of_the_chat_client_are_enforced() -> None:
    form = {
        "type": "json_schema",
        "json_schema": {"name": "s", "strict": True, "schema": NESTED},
    }
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "x"}],
        "response_format": form,
        "thinking": {"type": "disabled"},
    }
    engine = ScriptedEngine(steps=[[EOS]])
    assert ask(Chat(ChatOptions()), body, engine).status == 200
    grammar = engine.requests[0].params.grammar_request
    assert grammar is not None
    assert allows(grammar, tokens_of(RIGHT))
    assert not allows(grammar, tokens_of(WRONG))
    assert ask(Chat(ChatOptions(compat=False)), body, engine).status == 400


@pytest.mark.parametrize("inside", [False, True])
def test_nested_models_of_strict_tools_of_responses_are_enforced(inside: bool) -> None:
    tool = {"type": "function", "name": "f", "strict": True, "parameters": NESTED}
    tools: list[dict[str, Any]] = [tool]
    if inside:
        tools = [{"type": "namespace", "name": "n", "description": "d", "tools": [tool]}]
    body = {
        "model": MODEL,
        "input": "x",
        "tools": tools,
        "tool_choice": "required",
        "reasoning": {"effort": "none"},
    }
    engine = ScriptedEngine(steps=[[EOS]])
    reply = ask(Responses(ResponsesOptions()), body, engine)
    assert reply.status == 200, reply.raw
    grammar = engine.requests[0].params.grammar_request
    assert grammar is not None
    assert '"x"' in grammar.text.text


def test_nested_formats_of_responses_are_enforced() -> None:
    form = {"type": "json_schema", "name": "s", "strict": True, "schema": NESTED}
    body = {
        "model": MODEL,
        "input": "x",
        "text": {"format": form},
        "reasoning": {"effort": "none"},
    }
    engine = ScriptedEngine(steps=[[EOS]])
    assert ask(Responses(ResponsesOptions()), body, engine).status == 200
    grammar = engine.requests[0].params.grammar_request
    assert grammar is not None
    assert allows(grammar, tokens_of(RIGHT))
    assert not allows(grammar, tokens_of(WRONG))
