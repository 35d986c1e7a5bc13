"""Do strict schemas of official clients survive, definitions and references included?"""

from typing import Any

import pytest
from deepinfer_recipe_bridge.chat import Chat
from deepinfer_recipe_bridge.errors import BadRequest
from deepinfer_recipe_bridge.messages import Messages
from deepinfer_recipe_bridge.options import ChatOptions, MessagesOptions, ResponsesOptions
from deepinfer_recipe_bridge.responses import Responses
from deepinfer_recipe_bridge.strict_schemas import MAX_WRITTEN_OUT, strict_form
from deepinfer_recipe_bridge.surface import Surface
from grammars import allows
from scripted import EOS, MODEL, ScriptedEngine, ask, marked, tokens_of

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


BOUNDS = {
    "type": "object",
    "properties": {
        "a": {"type": "string", "maxLength": 2},
        "b": {
            "type": "object",
            "properties": {
                "l": {"type": "array", "items": {"type": "integer"}, "maxItems": 1},
                "k": {"type": "string", "const": "z"},
            },
        },
    },
}
DECLARED = {"type": "function", "name": "f", "strict": True, "parameters": BOUNDS}
SEARCH = {"call_id": "1", "execution": "client", "status": "completed"}
FORCED = [
    (
        Chat(ChatOptions()),
        {
            "messages": [{"role": "user", "content": "x"}],
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "f", "strict": True, "parameters": BOUNDS},
                }
            ],
            "tool_choice": "required",
            "thinking": {"type": "disabled"},
        },
    ),
    (
        Responses(ResponsesOptions()),
        {
            "input": "x",
            "tools": [
                {
                    "type": "namespace",
                    "name": "n",
                    "description": "d",
                    "tools": [DECLARED],
                }
            ],
            "tool_choice": "required",
            "reasoning": {"effort": "none"},
        },
    ),
    (
        Responses(ResponsesOptions()),
        {
            "input": [
                {"type": "message", "role": "user", "content": "x"},
                SEARCH | {"type": "tool_search_call", "arguments": {}},
                SEARCH | {"type": "tool_search_output", "tools": [DECLARED]},
            ],
            "tools": [DECLARED | {"name": "g"}],
            "tool_choice": "required",
            "reasoning": {"effort": "none"},
        },
    ),
]


@pytest.mark.parametrize(("surface", "fields"), FORCED)
@pytest.mark.parametrize(
    ("a", "b", "is_allowed"),
    [
        ("xx", '{"l": [1], "k": "z"}', True),
        ("xxx", '{"l": [1], "k": "z"}', False),
        ("xx", '{"l": [1, 2], "k": "z"}', False),
        ("xx", '{"l": [1], "k": "y"}', False),
        # What strictness adds: every member is there, and no other.
        ("xx", '{"l": [1]}', False),
        ("xx", '{"l": [1], "k": "z", "m": 1}', False),
    ],
)
def test_calls_of_strict_tools_are_held_to_what_was_written(
    surface: Surface, fields: dict[str, Any], a: str, b: str, is_allowed: bool
) -> None:
    engine = ScriptedEngine(steps=[[EOS]])
    reply = ask(surface, {"model": MODEL} | fields, engine)
    assert reply.status == 200, reply.raw
    grammar = engine.requests[0].params.grammar_request
    assert grammar is not None
    name = "n::f" if "namespace" in repr(fields) else "f"
    text = (
        f'<«D» invoke name="{name}">\n'
        f'<«D» parameter name="a" string="true">{a}</«D» parameter>\n'
        f'<«D» parameter name="b" string="false">{b}</«D» parameter>\n'
        "</«D» invoke>\n</«D» calls>"
    )
    assert allows(grammar, marked(text)) is is_allowed


def test_strict_tools_of_messages_are_held_to_their_schema() -> None:
    tool = {"name": "f", "strict": True, "input_schema": BOUNDS}
    body = {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
    engine = ScriptedEngine(steps=[[EOS]])
    surface = Messages(MessagesOptions())
    reply = ask(surface, body | {"tools": [tool], "thinking": {"type": "disabled"}}, engine)
    assert reply.status == 200, reply.raw
    grammar = engine.requests[0].params.grammar_request
    assert grammar is not None
    for value, is_allowed in (("xx", True), ("xxx", False)):
        text = (
            '\n\n<«D» calls>\n<«D» invoke name="f">\n'
            f'<«D» parameter name="a" string="true">{value}</«D» parameter>\n'
            "</«D» invoke>\n</«D» calls>"
        )
        assert allows(grammar, marked(text)) is is_allowed
