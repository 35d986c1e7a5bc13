"""How does each protocol say what failed before there is an answer?"""

import json
from typing import Any

import deepseek_recipe as recipe
import pytest
from deepinfer_core.errors import (
    DeadlineExceeded,
    DeepInferError,
    EngineBusy,
    EngineError,
    EngineUnavailable,
    NotFound,
    RequestError,
)
from deepinfer_recipe_bridge.chat import Chat
from deepinfer_recipe_bridge.dialects import CHAT_DIALECT, MESSAGES_DIALECT
from deepinfer_recipe_bridge.errors import shortened, with_reason
from deepinfer_recipe_bridge.messages import Messages
from deepinfer_recipe_bridge.options import ChatOptions, MessagesOptions, ResponsesOptions
from deepinfer_recipe_bridge.responses import Responses
from deepinfer_recipe_bridge.surface import Surface
from scripted import MODEL, ScriptedEngine, ask

CHAT, RESPONSES, MESSAGES = (
    Chat(ChatOptions()),
    Responses(ResponsesOptions()),
    Messages(MessagesOptions()),
)
SAID = [{"role": "user", "content": "hi"}]


def body_of(surface: Surface, **fields: Any) -> dict[str, Any]:
    if surface is RESPONSES:
        return {"model": MODEL, "input": "hi"} | fields
    return {"model": MODEL, "messages": SAID, "max_tokens": 9} | fields


OPENAI = [
    (400, "invalid_request_error", "invalid_request_error"),
    (401, "authentication_error", "invalid_api_key"),
    (403, "permission_error", "permission_denied"),
    (404, "invalid_request_error", "not_found"),
    (405, "invalid_request_error", "method_not_allowed"),
    (408, "timeout_error", "timeout"),
    (413, "invalid_request_error", "request_too_large"),
    (415, "invalid_request_error", "unsupported_media_type"),
    (429, "rate_limit_error", "rate_limit_exceeded"),
    (500, "server_error", "internal_error"),
    (503, "service_unavailable_error", "service_unavailable"),
]


@pytest.mark.parametrize(("status", "kind", "code"), OPENAI)
def test_errors_in_openai_s_form(status: int, kind: str, code: str) -> None:
    error = RequestError("this is wrong", hint="do that")
    error.code = "of_the_inside" if status == 500 else code
    shown = json.loads(CHAT_DIALECT.error_body(error, status, "req"))["error"]
    assert (shown["type"], shown["code"], shown["param"]) == (kind, code, None)
    assert ("do that" in shown["message"]) is (status != 500)
    event = CHAT_DIALECT.error_event(error, status, "req")
    assert json.loads(event.removeprefix(b"data: "))["error"] == shown


ANTHROPIC = [
    (400, "invalid_request_error"),
    (401, "authentication_error"),
    (403, "permission_error"),
    (404, "not_found_error"),
    (405, "invalid_request_error"),
    (408, "timeout_error"),
    (413, "request_too_large"),
    (415, "invalid_request_error"),
    (429, "rate_limit_error"),
    (500, "api_error"),
    (503, "overloaded_error"),
]


@pytest.mark.parametrize(("status", "kind"), ANTHROPIC)
def test_errors_in_anthropic_s_form(status: int, kind: str) -> None:
    error = RequestError("this is wrong")
    shown = json.loads(MESSAGES_DIALECT.error_body(error, status, "req"))
    assert shown["type"] == "error"
    assert shown["error"]["type"] == kind
    assert shown["request_id"] == "req"
    event = MESSAGES_DIALECT.error_event(error, status, "req").decode()
    assert event.startswith("event: error\ndata: ")
    assert json.loads(event.split("data: ")[1]) == shown


def test_what_was_unforeseen_says_nothing_of_the_inside() -> None:
    for dialect in (CHAT_DIALECT, MESSAGES_DIALECT, RESPONSES._open.dialect):
        body = dialect.error_body(EngineError("/home/x: secret"), 500, "req")
        assert b"secret" not in body


def test_what_is_not_there_may_have_a_word_of_its_own() -> None:
    body = CHAT_DIALECT.error_body(NotFound("no", code="model_not_found"), 404, "req")
    assert json.loads(body)["error"]["code"] == "model_not_found"


def test_a_message_that_quotes_the_request_is_cut() -> None:
    assert len(shortened("x" * 1000)) == 1000
    assert len(shortened("x" * 1001)) == 1000
    reply = ask(CHAT, body_of(CHAT, messages=[{"role": "x" * 5000}]))
    assert len(reply.body["error"]["message"]) == 1000


def test_keep_alives_mean_nothing() -> None:
    assert CHAT_DIALECT.keep_alive == b": keep-alive\n\n"
    assert MESSAGES_DIALECT.keep_alive == b'event: ping\ndata: {"type":"ping"}\n\n'


DEEP: list[Any] = []
for _ in range(3000):
    DEEP = [DEEP]


@pytest.mark.parametrize("surface", [CHAT, RESPONSES, MESSAGES])
@pytest.mark.parametrize(
    "fields",
    [
        {"model": 3},
        {"model": "\ud800"},
        {"seed": 2**64},
        {"temperature": 10**400},
        {"temperature": "hot"},
        {"metadata": DEEP},
        {"messages": "x", "input": 5},
        {"messages": [], "input": []},
        {"max_tokens": "many", "max_output_tokens": "many"},
        {"tools": "x"},
        {"tools": [3]},
        {"stop": 5, "stop_sequences": 5, "text": 5},
    ],
)
def test_what_cannot_be_read_is_the_client_s_fault(
    surface: Surface, fields: dict[str, Any]
) -> None:
    harmless = {"seed": (RESPONSES, MESSAGES), "metadata": (CHAT, RESPONSES)}
    reply = ask(surface, body_of(surface, **fields))
    if surface in harmless.get(next(iter(fields)), ()):
        assert reply.status in (200, 400)
        return
    assert reply.status == 400, reply.raw
    assert reply.body["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"messages": []}, "Empty input messages"),
        ({"messages": [{"role": "developer", "content": ""}]}, "Empty input messages"),
        ({"max_tokens": 0}, "Invalid max_tokens value"),
        ({"max_tokens": 393_217}, "Invalid max_tokens value"),
        ({"n": 2}, "only n = 1"),
        ({"stop": ["x"] * 17}, "Stop string array too long"),
        ({"top_logprobs": 3}, "logprobs"),
        ({"response_format": {"type": "json_object"}}, "must contain the word 'json'"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        (
            {
                "tools": [{"type": "function", "function": {"name": "f"}}],
                "tool_choice": "required",
            },
            "Thinking mode does not support this tool_choice",
        ),
    ],
)
def test_the_library_s_reasons_reach_the_client(fields: dict[str, Any], words: str) -> None:
    reply = ask(CHAT, body_of(CHAT, **fields))
    assert reply.status == 400
    assert words in reply.body["error"]["message"]


def test_the_library_s_reasons_are_put_into_anthropic_s_form() -> None:
    reply = ask(MESSAGES, body_of(MESSAGES, max_tokens=0))
    assert reply.status == 400
    assert reply.body["type"] == "error"
    assert "max_tokens" in reply.body["error"]["message"]


@pytest.mark.parametrize("surface", [CHAT, RESPONSES, MESSAGES])
def test_a_model_that_is_not_served_is_named_with_those_that_are(surface: Surface) -> None:
    """As text completions say it; ``tests/server/completions`` has the same words."""
    reply = ask(surface, body_of(surface, model="x"))
    assert reply.status == 400
    error = reply.body["error"]
    assert error["message"] == "there is no model 'x' (this service has m, other)"
    assert error["type"] == "invalid_request_error"
    if surface is not MESSAGES:
        assert (error["code"], error["param"]) == ("model_not_found", "model")


WRONG = [
    ({"temperature": "f32"}, "temperature", 'invalid type: string "f32", expected a number'),
    ({"stream": 5}, "stream", "invalid type: integer `5`, expected a boolean"),
    ({"tools": 5}, "tools", "invalid type: integer `5`, expected a list"),
    ({"model": 7}, "model", "invalid type: integer `7`, expected a string"),
]
WRONG_CHAT = [
    ({"thinking": 5}, "thinking", "invalid type: integer `5`, expected an object"),
    (
        {"reasoning_effort": 5},
        "reasoning_effort",
        "invalid type: integer `5`, expected a word or an object",
    ),
    ({"max_tokens": -1}, "max_tokens", "expected a whole number of its range"),
    ({"messages": [*SAID, {"role": 5, "content": ""}]}, "messages[1].role", "expected a word"),
    ({"messages": [*SAID, {"content": ""}]}, "messages[1]", "missing field `role`"),
    ({"messages": [*SAID, 5]}, "messages[1]", "invalid type"),
    ({"messages": [{**SAID[0], "content": 5}]}, "messages[0]", "content should be a"),
    ({"stop": [5]}, "stop[0]", "expected a string"),
]


@pytest.mark.parametrize(
    ("surface", "fields", "place", "reason"),
    [
        *[(one, *case) for one in (CHAT, RESPONSES, MESSAGES) for case in WRONG],
        *[(CHAT, *case) for case in WRONG_CHAT],
    ],
)
def test_a_field_of_another_type_is_named(
    surface: Surface, fields: dict[str, Any], place: str, reason: str
) -> None:
    reply = ask(surface, body_of(surface, **fields))
    assert reply.status == 400
    error = reply.body["error"]
    assert error["message"].startswith(f"{place}: ")
    assert reason in error["message"]
    assert error.get("param", place) == place


def test_a_field_that_is_missing_is_named() -> None:
    reply = ask(CHAT, {"messages": SAID})
    assert reply.body["error"]["param"] == "model"
    assert reply.body["error"]["message"] == "model: missing field `model`"


def test_a_reason_in_no_known_form_is_shown_as_it_is() -> None:
    assert with_reason("nothing like it").message == "nothing like it"


BEFORE = [
    (EngineBusy("full"), 429, "rate_limit_error", "rate_limit_error"),
    (EngineUnavailable("draining"), 503, "service_unavailable_error", "overloaded_error"),
    (DeadlineExceeded("over"), 503, "service_unavailable_error", "overloaded_error"),
    (EngineError("broke"), 500, "server_error", "api_error"),
    (RequestError("no"), 400, "invalid_request_error", "invalid_request_error"),
]


@pytest.mark.parametrize(("error", "status", "openai", "anthropic"), BEFORE)
@pytest.mark.parametrize("stream", [False, True])
def test_what_fails_before_the_first_event_is_a_response(
    error: DeepInferError, status: int, openai: str, anthropic: str, stream: bool
) -> None:
    for surface, kind in ((CHAT, openai), (RESPONSES, openai), (MESSAGES, anthropic)):
        reply = ask(surface, body_of(surface, stream=stream), ScriptedEngine(refusal=error))
        assert reply.status == status
        assert reply.body["error"]["type"] == kind


def test_a_grammar_that_the_engine_refuses_is_named() -> None:
    form = {"type": "regex", "regex": "(?<=a)\\1"}
    engine = ScriptedEngine(refusal=RequestError("back-references", hint="character 7"))
    reply = ask(CHAT, body_of(CHAT, response_format=form, stream=True), engine)
    assert reply.status == 400
    assert reply.body["error"]["code"] == "unsupported_grammar"
    assert reply.body["error"]["message"] == "back-references (character 7)"


def test_a_deadline_is_not_the_grammar_s_fault() -> None:
    engine = ScriptedEngine(refusal=DeadlineExceeded("over"))
    form = {"type": "regex", "regex": "a"}
    assert ask(CHAT, body_of(CHAT, response_format=form), engine).status == 503


def test_nothing_of_the_library_is_reached_by_half_a_request() -> None:
    with pytest.raises(ValueError, match="missing field"):
        recipe.ChatCompletionRequest({"messages": SAID})
    assert ask(CHAT, {"messages": SAID}).status == 400
