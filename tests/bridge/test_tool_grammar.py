"""Do the masks let calls through that the model was trained to write, and nothing else?"""

import json
from typing import Any

import deepseek_recipe as recipe
import pytest
from deepinfer_core.engine.grammar_request import GrammarRequest
from deepinfer_core.testing.byte_tokenizer import byte_tokenizer_source
from deepinfer_recipe_bridge.chat import Chat
from deepinfer_recipe_bridge.messages import Messages
from deepinfer_recipe_bridge.options import (
    ChatOptions,
    MessagesOptions,
    ResponsesOptions,
    ToolGrammar,
)
from deepinfer_recipe_bridge.responses import Responses
from deepinfer_recipe_bridge.surface import Surface
from grammars import allows
from scripted import ASSISTANT, DSML, EOS, MODEL, THINK_END, ScriptedEngine, ask, marked, tokens_of

USER = [{"role": "user", "content": "json?"}]
PLACE = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "unit": {"type": "string", "enum": ["C", "F"]},
    },
    "required": ["city"],
}
OPENING = "\n\n<«D» calls>\n"


def tool(parameters: Any = None, *, name: str = "f", strict: bool = False) -> dict[str, Any]:
    function = {"name": name, "parameters": PLACE if parameters is None else parameters}
    return {"type": "function", "function": function | ({"strict": True} if strict else {})}


def asked(
    tools: list[dict[str, Any]], level: ToolGrammar = "auto", **fields: Any
) -> GrammarRequest | None:
    """What the engine is asked to enforce."""
    engine = ScriptedEngine(steps=[[EOS]])
    body = {"model": MODEL, "messages": USER, "tools": tools, "thinking": {"type": "disabled"}}
    reply = ask(Chat(ChatOptions(tool_grammar=level)), body | fields, engine)
    assert reply.status == 200, reply.raw
    return engine.requests[0].params.grammar_request


def allowed(request: GrammarRequest | None, text: str) -> bool:
    assert request is not None
    return allows(request, marked(text))


def call(inside: str, name: str = "f") -> str:
    return f'<«D» invoke name="{name}">\n{inside}</«D» invoke>\n'


def parameter(name: str, value: str, *, is_text: bool) -> str:
    mark = "true" if is_text else "false"
    return f'<«D» parameter name="{name}" string="{mark}">{value}</«D» parameter>\n'


def block(*calls: str) -> str:
    return f"{OPENING}{''.join(calls)}</«D» calls>"


def trained(arguments: list[dict[str, Any]], content: str = "") -> list[int]:
    """The turn of an assistant that called ``f``, as the library writes it into a prompt."""
    calls = [
        {"id": str(i), "type": "function", "function": {"name": "f", "arguments": json.dumps(one)}}
        for i, one in enumerate(arguments)
    ]
    results = [{"role": "tool", "tool_call_id": one["id"], "content": "x"} for one in calls]
    turn = {"role": "assistant", "content": content, "tool_calls": calls}
    body = {
        "model": MODEL,
        "messages": [*USER, turn, *results],
        "tools": [tool()],
        "thinking": {"type": "disabled"},
    }
    versions = {MODEL: recipe.ModelVersion.DeepseekV41Flash}
    options = recipe.ConversionOptions().with_model_versions_by_name(versions)
    tokenizer = recipe.Tokenizer.from_str(byte_tokenizer_source())
    encoding = recipe.DeepseekV41Encoding().with_tokenizer(tokenizer)
    ids = encoding.encode(recipe.ChatCompletionRequest(body).convert(options).conversation)
    begin = ids.index(ASSISTANT)
    turn_ids = ids[begin + 1 : ids.index(EOS, begin)]
    assert turn_ids[0] == THINK_END
    return turn_ids[1:]


ARGUMENTS = [
    {"city": "Köln"},
    {"city": 'a\nb </x> <think> "q" ｜DSML｜', "days": -3},
    {"city": "", "unit": "F"},
    {"city": " 世界 ", "days": 0, "unit": "C"},
]


@pytest.mark.parametrize("arguments", ARGUMENTS)
@pytest.mark.parametrize("level", ["syntax", "schema"])
def test_calls_as_the_library_writes_them_are_allowed(
    arguments: dict[str, Any], level: ToolGrammar
) -> None:
    request = asked([tool()], level)
    assert request is not None
    assert allows(request, trained([arguments]))
    assert allows(request, trained([arguments, ARGUMENTS[0]], "Let me see."))


def test_a_call_without_parameters_has_an_empty_line() -> None:
    request = asked([tool({"type": "object", "properties": {}})], "syntax")
    assert request is not None
    assert allows(request, trained([{}]))
    assert allowed(asked([tool({"type": "object"})], "schema"), block(call("\n")))


def test_text_alone_is_allowed_where_the_choice_is_free() -> None:
    request = asked([tool()])
    assert allowed(request, "")
    assert allowed(request, "No call, <thanks>.\n\n<")


def test_markup_in_ordinary_tokens_is_text() -> None:
    spelled = tokens_of(
        block(call(parameter("city", "x", is_text=True))).replace("«D»", "｜DSML｜")
    )
    request = asked([tool()])
    assert request is not None
    assert allows(request, spelled)
    forced = asked([tool()], tool_choice="required")
    assert forced is not None
    assert not allows(forced, spelled[len(tokens_of("\n\n<｜DSML｜ calls>\n")) :])


def test_nothing_follows_a_block() -> None:
    whole = block(call(parameter("city", "x", is_text=True)))
    request = asked([tool()])
    assert allowed(request, whole)
    assert not allowed(request, whole + "\n")
    assert not allowed(request, whole + whole)


def test_only_declared_tools_are_called() -> None:
    request = asked([tool(name="f"), tool(name="ns--g")])
    inside = parameter("city", "x", is_text=True)
    assert allowed(request, block(call(inside, "f"), call(inside, "ns--g")))
    assert not allowed(request, block(call(inside, "g")))
    assert not allowed(request, block(call(inside, "")))


@pytest.mark.parametrize(
    ("inside", "by_syntax", "by_schema"),
    [
        (parameter("city", "x", is_text=True), True, True),
        (parameter("city", '"x"', is_text=False), True, False),
        (parameter("days", "3", is_text=False), True, False),
        (
            parameter("city", "x", is_text=True) + parameter("days", "3", is_text=False),
            True,
            True,
        ),
        (
            parameter("city", "x", is_text=True) + parameter("days", "3.5", is_text=False),
            True,
            False,
        ),
        (
            parameter("city", "x", is_text=True) + parameter("days", "3", is_text=True),
            True,
            False,
        ),
        (
            parameter("days", "3", is_text=False) + parameter("city", "x", is_text=True),
            True,
            False,
        ),
        (parameter("city", "x", is_text=True) + parameter("unit", "C", is_text=True), True, True),
        (parameter("city", "x", is_text=True) + parameter("unit", "K", is_text=True), True, False),
        (parameter("town", "x", is_text=True), False, False),
        (parameter("days", "{", is_text=False), False, False),
        ("\n", True, False),
        ("", False, False),
    ],
)
def test_the_level_says_how_far_parameters_are_enforced(
    inside: str, by_syntax: bool, by_schema: bool
) -> None:
    assert allowed(asked([tool()], "syntax"), block(call(inside))) is by_syntax
    assert allowed(asked([tool()], "schema"), block(call(inside))) is by_schema


def test_strict_tools_and_forced_calls_follow_the_schema() -> None:
    wrong = call(parameter("unit", "K", is_text=True))
    strict = {"type": "object", "properties": {"unit": {"type": "string", "enum": ["C"]}}}
    assert allowed(asked([tool(strict)]), block(wrong))
    assert not allowed(asked([tool(strict, strict=True)]), block(wrong))
    assert allowed(asked([tool(strict, strict=True)], "syntax"), block(wrong))
    assert not allowed(asked([tool(strict)], tool_choice="required"), f"{wrong}</«D» calls>")


def test_no_level_leaves_everything_to_the_model() -> None:
    strict = {"type": "object", "properties": {"unit": {"type": "string"}}}
    assert asked([tool(strict, strict=True)], "off") is None
    assert asked([tool()], "off", tool_choice="required") is None


def test_a_forced_call_begins_inside_the_block_that_the_prompt_opened() -> None:
    one = call(parameter("city", "x", is_text=True))
    for choice in ("required", {"type": "function", "function": {"name": "f"}}):
        request = asked([tool()], tool_choice=choice)
        assert allowed(request, f"{one}</«D» calls>")
        assert allowed(request, f"{one}{one}</«D» calls>")
        assert not allowed(request, "</«D» calls>")
        assert not allowed(request, "text")
        assert not allowed(request, block(one))


def test_a_choice_of_none_asks_for_nothing() -> None:
    assert asked([tool()], tool_choice="none") is None


def test_one_call_at_most_where_parallel_calls_are_off() -> None:
    one = call(parameter("city", "x", is_text=True))
    request = asked([tool()], parallel_tool_calls=False)
    assert allowed(request, block(one))
    assert not allowed(request, block(one, one))


def test_reasoning_holds_no_call_and_ends_before_the_answer() -> None:
    request = asked([tool()], thinking={"type": "enabled"})
    whole = block(call(parameter("city", "x", is_text=True)))
    assert allowed(request, f"hm «/think»{whole}")
    assert allowed(request, "hm «/think»no")
    assert allowed(request, "«/think»")
    assert not allowed(request, "hm")
    assert not allowed(request, whole)
    assert not allowed(request, f"hm{whole}")
    assert not allowed(request, "a«/think»b«/think»c")


def test_beside_a_format_the_answer_is_one_or_the_other() -> None:
    schema = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    request = asked([tool()], response_format=form)
    assert allowed(request, '{"a": 1}')
    assert allowed(request, block(call(parameter("city", "x", is_text=True))))
    assert not allowed(request, "text")
    assert not allowed(request, '{"a": 2}')
    forced = asked([tool()], response_format=form, tool_choice="required")
    assert allowed(forced, call(parameter("city", "x", is_text=True)) + "</«D» calls>")
    regex = asked([tool()], response_format={"type": "regex", "regex": "[ab]+"})
    assert allowed(regex, "abba")
    assert not allowed(regex, "abc")


NULLS = {"type": "array", "items": {"type": "null"}}
CLOSED = {
    "type": "object",
    "properties": {"z": {"type": "integer"}},
    "additionalProperties": False,
}
FORMS = [
    ({"type": "string", "pattern": "^a+$"}, ["a", "aaa"], ["b", ""], [], ['"a"']),
    ({"type": "string", "pattern": "b"}, ["abc"], ["ac"], [], []),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "世界🙂"], ["a", "abcd"], [], []),
    ({"type": "string", "format": "ipv4"}, [], ["x"], ['"1.2.3.4"'], ["1", '"x"']),
    ({"type": ["string", "null"]}, ["x"], [], ["null"], ["1", '"x"']),
    ({"type": ["string", "integer"], "maxLength": 1}, ["x"], ["xy"], ["17"], ["null"]),
    ({"anyOf": [{"type": "string"}, NULLS]}, ["x"], [], ["[null]"], ["[1]"]),
    ({"enum": ["a", 1, None]}, ["a"], ["b", "1"], ["1", "null"], ["2"]),
    ({"const": "a<b"}, ["a<b"], ["a"], [], []),
    ({}, ["x"], [], ["{}", "1", "null"], ["{"]),
    (True, ["x"], [], ["[]"], ["x"]),
    (CLOSED, [], ["x"], ['{"z": 1}', "{}"], ['{"y": 1}']),
    ({"$ref": "#/$defs/P"}, [], ["x"], ['{"p": 1}'], ['{"p": "x"}']),
    ({"type": "array", "items": {"$ref": "#/$defs/P"}}, [], ["x"], ['[{"p": 1}]'], ["[1]"]),
    ({"$ref": "#/$defs/T"}, ["t"], ["u"], [], []),
    ({"allOf": [{"type": "string"}, {"maxLength": 2}]}, [], ["x"], ['"ab"'], ['"abc"', "1"]),
    ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, [], ["x"], ['"x"', "3"], ["null"]),
    ({"title": "T", "description": "d", "type": "boolean"}, [], ["true"], ["true"], ["1"]),
]  # fmt: skip
DEFINITIONS = {
    "P": {"type": "object", "properties": {"p": {"type": "integer"}}, "required": ["p"]},
    "T": {"enum": ["t"]},
}


@pytest.mark.parametrize(("schema", "raw", "not_raw", "values", "not_values"), FORMS)
def test_values_follow_their_schemas(
    schema: Any, raw: list[str], not_raw: list[str], values: list[str], not_values: list[str]
) -> None:
    root = {
        "type": "object",
        "properties": {"v": schema},
        "required": ["v"],
        "$defs": DEFINITIONS,
    }
    request = asked([tool(root)], "schema")
    for texts, is_text, wanted in (
        (raw, True, True),
        (not_raw, True, False),
        (values, False, True),
        (not_values, False, False),
    ):
        for text in texts:
            inside = parameter("v", text, is_text=is_text)
            assert allowed(request, block(call(inside))) is wanted, (text, is_text)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"type": "object", "anyOf": [{"required": ["a"]}]}, "anyOf"),
        ({"type": "object", "minProperties": 1}, "minProperties"),
        ({"type": "object", "required": ["a"]}, "does not describe"),
        (
            {"type": "object", "properties": {'a"': {}}, "required": ['a"']},
            "cannot stand in a call",
        ),
    ],
)
def test_what_calls_cannot_be_held_to_is_refused(parameters: Any, words: str) -> None:
    body = {
        "model": MODEL,
        "messages": USER,
        "tools": [tool(parameters)],
        "tool_choice": "required",
        "thinking": {"type": "disabled"},
    }
    reply = ask(Chat(ChatOptions()), body)
    assert reply.status == 400
    assert reply.body["error"]["code"] == "unsupported_grammar"
    assert words in reply.body["error"]["message"]


def test_a_name_that_no_call_can_hold_is_left_out_where_it_may_be() -> None:
    root = {"type": "object", "properties": {'a"': {}, "b": {}}}
    request = asked([tool(root)], "schema")
    assert allowed(request, block(call(parameter("b", "x", is_text=True))))
    assert allowed(request, block(call("\n")))


def test_without_a_grammar_component_only_promises_are_refused() -> None:
    for strict, status in ((False, 200), (True, 400)):
        strict_root = {"type": "object", "properties": {"a": {"type": "string"}}}
        body = {"model": MODEL, "messages": USER, "tools": [tool(strict_root, strict=strict)]}
        engine = ScriptedEngine(steps=[[EOS]], grammar_kinds=())
        assert ask(Chat(ChatOptions()), body, engine).status == status
        assert ask(Chat(ChatOptions(tool_grammar="off")), body, engine).status == 200
        assert ask(Chat(ChatOptions(tool_grammar="syntax")), body, engine).status == 400


NAMED = {"type": "function", "function": {"name": "f"}}
OPENAI_ITEM = {"type": "function", "name": "f", "parameters": PLACE}
MESSAGES_TOOL = {"name": "f", "input_schema": PLACE}
CHAT_FIELDS = {"messages": USER, "thinking": {"type": "disabled"}, "tools": [tool(PLACE)]}
RESPONSES_FIELDS = {"input": "hi", "reasoning": {"effort": "none"}, "tools": [OPENAI_ITEM]}
MESSAGES_FIELDS = {
    "messages": USER, "max_tokens": 9, "thinking": {"type": "disabled"}, "tools": [MESSAGES_TOOL]
}  # fmt: skip


@pytest.mark.parametrize(
    ("protocol", "fields", "choice", "status"),
    [
        (Chat(ChatOptions()), CHAT_FIELDS, "required", 400),
        (Chat(ChatOptions()), CHAT_FIELDS, NAMED, 400),
        (Chat(ChatOptions()), CHAT_FIELDS, "auto", 200),
        (Chat(ChatOptions(tool_grammar="off")), CHAT_FIELDS, "required", 200),
        (Responses(ResponsesOptions()), RESPONSES_FIELDS, "required", 400),
        (Responses(ResponsesOptions()), RESPONSES_FIELDS, {"type": "function", "name": "f"}, 400),
        (Responses(ResponsesOptions()), RESPONSES_FIELDS, "auto", 200),
        (Messages(MessagesOptions()), MESSAGES_FIELDS, {"type": "tool", "name": "f"}, 400),
        (Messages(MessagesOptions()), MESSAGES_FIELDS, {"type": "any"}, 200),
        (
            Messages(MessagesOptions(messages_any_forces=True)),
            MESSAGES_FIELDS,
            {"type": "any"},
            400,
        ),
        (Messages(MessagesOptions()), MESSAGES_FIELDS, {"type": "auto"}, 200),
    ],
)
@pytest.mark.parametrize("kinds", [(), ("regex",)])
def test_a_forced_call_is_refused_where_nothing_can_enforce_it(
    protocol: Surface, fields: dict[str, Any], choice: Any, status: int, kinds: tuple[str, ...]
) -> None:
    engine = ScriptedEngine(steps=[[EOS]], grammar_kinds=kinds)
    reply = ask(protocol, {"model": MODEL, "tool_choice": choice} | fields, engine)
    assert reply.status == status, reply.raw
    if status == 200:
        return
    assert not engine.requests
    error = reply.body["error"]
    assert error.get("code", "unsupported_grammar") == "unsupported_grammar"
    assert "forced call (tool_choice)" in error["message"]
    assert "components.grammar.use" in error["message"]
    assert ("install it" in error["message"]) is (kinds == ())


@pytest.mark.parametrize(
    ("forces", "thinking"), [(True, "disabled"), (True, "enabled"), (False, "disabled")]
)
def test_any_of_messages_forces_a_call_only_by_option_and_without_thinking(
    forces: bool, thinking: str
) -> None:
    engine = ScriptedEngine(steps=[[EOS]])
    body = {
        "model": MODEL,
        "messages": USER,
        "max_tokens": 9,
        "tools": [{"name": "f", "input_schema": PLACE}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "thinking": {"type": thinking},
    }
    assert ask(Messages(MessagesOptions(messages_any_forces=forces)), body, engine).status == 200
    prompt = engine.requests[0].prompt_token_ids
    opened = tokens_of("\n\n<"), DSML, tokens_of(" calls>\n")
    is_open = prompt[-len(opened[2]) :] == tuple(opened[2]) and DSML in prompt
    assert is_open is (forces and thinking == "disabled")
    one = call(parameter("city", "x", is_text=True))
    request = engine.requests[0].params.grammar_request
    if is_open:
        assert allowed(request, f"{one}</«D» calls>")
        assert not allowed(request, f"{one}{one}</«D» calls>")
    elif thinking == "disabled":
        assert allowed(request, "text")
