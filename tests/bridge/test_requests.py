"""What is the engine asked for, field by field of each protocol?"""

import re
from typing import Any

import pytest
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.interfaces.async_engine import GenerateRequest
from deepinfer_core.testing.byte_tokenizer import byte_tokenizer_source
from deepinfer_recipe_bridge.chat import Chat
from deepinfer_recipe_bridge.messages import Messages
from deepinfer_recipe_bridge.options import ChatOptions, MessagesOptions, ResponsesOptions
from deepinfer_recipe_bridge.responses import Responses
from deepinfer_recipe_bridge.surface import Surface
from grammars import allows
from scripted import (
    ASSISTANT,
    BOS,
    DSML,
    EOS,
    MODEL,
    PAD,
    SYSTEM,
    THINK,
    THINK_END,
    USER,
    Reply,
    ScriptedEngine,
    ask,
    tokens_of,
)

CHAT, RESPONSES, MESSAGES = (
    Chat(ChatOptions()),
    Responses(ResponsesOptions()),
    Messages(MessagesOptions()),
)
SAID = [{"role": "user", "content": "json?"}]
OFF = {"thinking": {"type": "disabled"}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def body_of(surface: Surface, **fields: Any) -> dict[str, Any]:
    if surface is RESPONSES:
        return {"model": MODEL, "input": "json?"} | fields
    return {"model": MODEL, "messages": SAID, "max_tokens": 9} | fields


def asked(surface: Surface, **fields: Any) -> GenerateRequest:
    engine = ScriptedEngine(steps=[[EOS]])
    reply = ask(surface, body_of(surface, **fields), engine, key_label=fields.pop("key", ""))
    assert reply.status == 200, reply.raw
    return engine.requests[0]


def params(surface: Surface, **fields: Any) -> SamplingParams:
    return asked(surface, **fields).params


def refused(surface: Surface, **fields: Any) -> Reply:
    engine = ScriptedEngine(steps=[[EOS]])
    reply = ask(surface, body_of(surface, **fields), engine)
    assert reply.status == 400
    assert not engine.requests
    return reply


@pytest.mark.parametrize(
    ("surface", "fields", "most"),
    [
        (CHAT, {"max_tokens": 7}, 7),
        (CHAT, {"max_tokens": None, "max_completion_tokens": 8}, 8),
        (CHAT, {"max_tokens": 7, "max_completion_tokens": 8}, 7),
        (CHAT, {"max_tokens": None, **OFF}, 8192),
        (CHAT, {"max_tokens": None}, 65536),
        (CHAT, {"max_tokens": None, "reasoning_effort": "max"}, 131072),
        (RESPONSES, {}, 65536),
        (RESPONSES, {"reasoning": {"effort": "none"}}, 8192),
        (RESPONSES, {"max_output_tokens": 5}, 5),
        (MESSAGES, {}, 9),
        (MESSAGES, {"max_tokens": 500_000}, 393_216),
    ],
)
def test_the_length_of_an_answer(surface: Surface, fields: dict[str, Any], most: int) -> None:
    assert params(surface, **fields).max_tokens == most


def test_the_default_length_is_lowered_to_the_context() -> None:
    engine = ScriptedEngine(steps=[[EOS]], max_model_len=300)
    assert ask(CHAT, {"model": MODEL, "messages": SAID}, engine).status == 200
    [request] = engine.requests
    assert request.params.max_tokens == 300 - len(request.prompt_token_ids)


def test_a_prompt_is_refused_from_the_length_of_the_context_on() -> None:
    length = len(asked(CHAT, **OFF).prompt_token_ids)
    body = {"model": MODEL, "messages": SAID, **OFF}
    statuses = [
        ask(CHAT, body, ScriptedEngine(steps=[[EOS]], max_model_len=length + more)).status
        for more in (-1, 0, 1)
    ]
    assert statuses == [400, 400, 200]


@pytest.mark.parametrize(
    "surface", [CHAT, RESPONSES, MESSAGES], ids=["chat", "responses", "messages"]
)
@pytest.mark.parametrize("more", [0, 1])
def test_a_prompt_of_more_than_16_characters_a_token_of_the_context_is_not_encoded(
    surface: Surface, more: int
) -> None:
    """So much text takes gigabytes to encode, and would not fit in any case."""
    context, key = 1000, "input" if surface is RESPONSES else "messages"

    def sent(length: int) -> dict[str, Any]:
        text = "x" * length
        said: Any = text if surface is RESPONSES else [{"role": "user", "content": text}]
        return body_of(surface) | {key: said}

    def message(length: int) -> str:
        engine = ScriptedEngine(steps=[[EOS]], max_model_len=context)
        reply = ask(surface, sent(length), engine)
        assert reply.status == 400
        return str(reply.body["error"]["message"])

    found = re.search(r"the prompt has (\d+) characters", message(20_000))
    assert found is not None
    frame = int(found[1]) - 20_000
    said = message(16 * context - frame + more)
    assert ("characters" in said) is bool(more)
    assert ("tokens" in said) is not bool(more)


def test_a_length_that_was_asked_for_must_fit_into_the_context() -> None:
    length = len(asked(CHAT, **OFF).prompt_token_ids)
    body = body_of(CHAT, max_tokens=5, **OFF)
    fits = ScriptedEngine(steps=[[EOS]], max_model_len=length + 5)
    assert ask(CHAT, body, fits).status == 200
    short = ask(CHAT, body, ScriptedEngine(max_model_len=length + 4))
    assert short.status == 400
    assert "maximum context length" in short.body["error"]["message"]


@pytest.mark.parametrize(
    ("surface", "fields", "drawn"),
    [
        (CHAT, {"temperature": 0.3, "top_p": 0.4}, (1.0, 0.95)),
        (CHAT, {"temperature": 0.3, "top_p": 0.97}, (1.0, 0.97)),
        (CHAT, {"temperature": 0.3, "top_p": 0.4, **OFF}, (0.3, 1.0)),
        (CHAT, OFF, (1.0, 1.0)),
        (RESPONSES, {"temperature": 0, "reasoning": {"effort": "none"}}, (0.0, 1.0)),
        (MESSAGES, {"temperature": 0.25, **OFF}, (0.25, 1.0)),
        (MESSAGES, {}, (1.0, 1.0)),
    ],
)
def test_temperature_and_top_p(
    surface: Surface, fields: dict[str, Any], drawn: tuple[float, float]
) -> None:
    found = params(surface, **fields)
    # The library keeps them as 32-bit floats: half a unit in the last of 24 bits.
    assert (found.temperature, found.top_p) == pytest.approx(drawn, rel=2**-24)


def test_the_seed_is_handed_on() -> None:
    assert params(CHAT, seed=2**63 - 1).seed == 2**63 - 1
    assert params(CHAT).seed is None
    refused(CHAT, seed=2**63)


@pytest.mark.parametrize(
    ("surface", "fields", "alternatives"),
    [
        (CHAT, {}, None),
        (CHAT, {"logprobs": True}, 0),
        (CHAT, {"logprobs": True, "top_logprobs": 20}, 20),
        (CHAT, {"logprobs": False}, None),
        (RESPONSES, {"top_logprobs": 2}, 2),
    ],
)
def test_log_probabilities(
    surface: Surface, fields: dict[str, Any], alternatives: int | None
) -> None:
    assert params(surface, **fields).alternatives == alternatives


def test_stop_strings_are_left_to_the_reader_of_the_answer() -> None:
    found = params(CHAT, stop=["x"], **OFF)
    assert not found.stop_strings
    assert not found.stop_ids


ALWAYS = {BOS, PAD, USER, ASSISTANT, SYSTEM, THINK}


@pytest.mark.parametrize(
    ("fields", "banned"),
    [
        (OFF, ALWAYS | {THINK_END, DSML}),
        ({}, ALWAYS | {DSML}),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, ALWAYS),
        ({"tools": [{"type": "function", "function": {"name": "f"}}], **OFF}, ALWAYS | {THINK_END}),
        (
            {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none"},
            ALWAYS | {DSML},
        ),
    ],
)
def test_control_tokens_are_drawn_only_where_they_mean_something(
    fields: dict[str, Any], banned: set[int]
) -> None:
    assert {token for (token,) in params(CHAT, **fields).bad_sequences} == banned


def test_the_end_of_the_sequence_is_never_banned() -> None:
    assert (EOS,) not in params(CHAT).bad_sequences


def test_ids_that_the_tokenizer_does_not_know_are_banned() -> None:
    engine = ScriptedEngine(steps=[[EOS]], vocabulary=270)
    ask(CHAT, body_of(CHAT), engine)
    assert {(token,) for token in range(265, 270)} < set(engine.requests[0].params.bad_sequences)


@pytest.mark.parametrize(
    ("surface", "fields"),
    [
        (CHAT, {"user_id": "u1"}),
        (CHAT, {"user": "u1"}),
        (RESPONSES, {"user": "u1"}),
        (MESSAGES, {"metadata": {"user_id": "u1"}}),
    ],
)
def test_users_share_no_cached_prefix(surface: Surface, fields: dict[str, Any]) -> None:
    salts = {asked(surface).cache_salt}
    salts.add(asked(surface, **fields).cache_salt)
    engine = ScriptedEngine(steps=[[EOS]])
    for key in ("k", "u1"):
        ask(surface, body_of(surface, **fields), engine, key_label=key)
        ask(surface, body_of(surface), engine, key_label=key)
    salts |= {request.cache_salt for request in engine.requests}
    assert len(salts) == 6
    assert asked(surface).cache_salt == ""


@pytest.mark.parametrize(("size", "status"), [(512, 200), (513, 400)])
def test_a_user_has_512_bytes_at_most(size: int, status: int) -> None:
    name = "é" * 256 + "x" * (size - 512)
    assert ask(CHAT, body_of(CHAT, user_id=name), ScriptedEngine(steps=[[EOS]])).status == status


def test_a_user_that_is_no_text_is_refused() -> None:
    assert refused(CHAT, user_id=3).body["error"]["param"] == "user_id"


def test_both_names_of_the_model_are_taken_and_no_other() -> None:
    assert asked(CHAT, model="other")
    assert "there is no model 'third'" in refused(CHAT, model="third").body["error"]["message"]


@pytest.mark.parametrize(("count", "status"), [(128, 200), (129, 400)])
def test_a_request_has_128_tools_at_most(count: int, status: int) -> None:
    tools = [{"type": "function", "function": {"name": f"f{i}"}} for i in range(count)]
    assert ask(CHAT, body_of(CHAT, tools=tools), ScriptedEngine(steps=[[EOS]])).status == status


def test_the_role_developer_is_that_of_the_system() -> None:
    said = [{"role": "developer", "content": "be"}, *SAID]
    system = [{"role": "system", "content": "be"}, *SAID]
    found = asked(CHAT, messages=said).prompt_token_ids
    assert found == asked(CHAT, messages=system).prompt_token_ids
    plain = ask(Chat(ChatOptions(compat=False)), body_of(CHAT, messages=said))
    assert plain.status == 400


def test_custom_is_the_type_of_a_plain_tool_of_messages() -> None:
    tool = {"name": "f", "input_schema": {"type": "object"}}
    typed = asked(MESSAGES, tools=[tool | {"type": "custom"}]).prompt_token_ids
    assert typed == asked(MESSAGES, tools=[tool]).prompt_token_ids
    refused(MESSAGES, tools=[tool | {"type": "web_search_20250305"}])


IMAGE = "data:image/png;base64,aGk="


@pytest.mark.parametrize(
    ("surface", "fields"),
    [
        (
            CHAT,
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": {"url": IMAGE}}],
                    }
                ]
            },
        ),
        (
            RESPONSES,
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": IMAGE}]}]},
        ),
        (
            MESSAGES,
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "image",
                                "source": {
                                    "type": "base64",
                                    "media_type": "image/png",
                                    "data": "aGk=",
                                },
                            }
                        ],
                    }
                ]
            },
        ),
    ],
)
def test_images_are_refused_in_words(surface: Surface, fields: dict[str, Any]) -> None:
    reply = refused(surface, **fields)
    assert "does not accept images" in reply.body["error"]["message"]
    assert reply.notes.images == 1


@pytest.mark.parametrize(
    ("form", "kind", "text"),
    [
        ({"type": "json_object"}, "json_object", ""),
        ({"type": "regex", "regex": "a+"}, "regex", "a+"),
    ],
)
def test_formats_begin_behind_the_reasoning(form: dict[str, Any], kind: str, text: str) -> None:
    thinking = params(CHAT, response_format=form).grammar_request
    assert thinking is not None
    assert (thinking.kind, thinking.grammar, thinking.trigger_ids) == (kind, text, (THINK_END,))
    at_once = params(CHAT, response_format=form, **OFF).grammar_request
    assert at_once is not None
    assert at_once.trigger_ids == ()


@pytest.mark.parametrize(
    ("surface", "fields"),
    [
        (
            CHAT,
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "s", "schema": SCHEMA},
                },
                **OFF,
            },
        ),
        (
            RESPONSES,
            {
                "text": {"format": {"type": "json_schema", "name": "s", "schema": SCHEMA}},
                "reasoning": {"effort": "none"},
            },
        ),
        (MESSAGES, {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}, **OFF}),
        (MESSAGES, {"output_format": {"type": "json_schema", "schema": SCHEMA}, **OFF}),
    ],
)
def test_schemas_are_enforced_and_announced(surface: Surface, fields: dict[str, Any]) -> None:
    request = asked(surface, **fields)
    grammar = request.params.grammar_request
    assert grammar is not None
    assert grammar.kind == "json_schema"
    assert allows(grammar, tokens_of('{"a": 1}'))
    assert not allows(grammar, tokens_of('{"a": "x"}'))
    announced = tuple(tokens_of("strictly adhere to the following schema"))
    prompt = request.prompt_token_ids
    assert any(prompt[i : i + len(announced)] == announced for i in range(len(prompt)))


def test_a_prefix_is_the_beginning_of_what_the_grammar_sees() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
    for more in (OFF, {}):
        said = [*SAID, {"role": "assistant", "content": '{"a"', "prefix": True}]
        grammar = params(CHAT, messages=said, response_format=form, **more).grammar_request
        assert grammar is not None
        assert grammar.prefix_ids == tuple(tokens_of('{"a"'))
        assert grammar.trigger_ids == ()
        assert allows(grammar, tokens_of(": 1}"))
        assert not allows(grammar, tokens_of('{"a": 1}'))


def test_a_prefix_of_reasoning_leaves_the_answer_to_begin() -> None:
    form = {"type": "regex", "regex": "a+"}
    last = {"role": "assistant", "content": "", "reasoning_content": "so", "prefix": True}
    grammar = params(CHAT, messages=[*SAID, last], response_format=form).grammar_request
    assert grammar is not None
    assert (grammar.prefix_ids, grammar.trigger_ids) == ((), (THINK_END,))


@pytest.mark.parametrize("kinds", [(), ("regex",)])
def test_a_format_that_cannot_be_enforced_is_refused(kinds: tuple[str, ...]) -> None:
    engine = ScriptedEngine(grammar_kinds=kinds)
    body = body_of(CHAT, response_format={"type": "json_object"}, stream=True)
    reply = ask(CHAT, body, engine)
    assert reply.status == 400
    assert reply.body["error"]["code"] == "unsupported_grammar"


@pytest.mark.parametrize("config", [{"type": "text"}, "x", {"type": "json_schema"}])
def test_another_format_of_messages_is_refused(config: Any) -> None:
    refused(MESSAGES, output_config={"format": config})


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}], "instructions": "be"}, "input"),
        ({"input": []}, None),
    ],
)
def test_what_would_lose_history_is_refused(fields: dict[str, Any], param: str | None) -> None:
    assert refused(RESPONSES, **fields).body["error"]["param"] == param


def test_tokens_are_counted_without_an_answer() -> None:
    engine = ScriptedEngine()
    body = {"model": MODEL, "messages": SAID}
    reply = ask(MESSAGES, body, engine, at="POST /v1/messages/count_tokens")
    assert reply.body == {"input_tokens": len(asked(MESSAGES).prompt_token_ids)}
    assert not engine.requests


def test_a_tokenizer_without_the_family_s_control_tokens_has_no_chat() -> None:
    for tokenizer in (None, byte_tokenizer_source().replace("｜DSML｜", "DSML")):
        reply = ask(CHAT, body_of(CHAT), ScriptedEngine(tokenizer_json=tokenizer))
        assert reply.status == 400
        assert "no chat form" in reply.body["error"]["message"]
