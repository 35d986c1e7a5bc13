"""What becomes of an answer that fails or is ended in its middle, and what is kept of it?"""

import asyncio
import json
from typing import Any

import pytest
from deepinfer_core.errors import (
    DeepInferError,
    EngineBusy,
    EngineError,
    RequestError,
)
from deepinfer_core.interfaces.async_engine import AbortedBy
from deepinfer_core.interfaces.protocol import EventAnswer, HttpCall
from deepinfer_recipe_bridge.chat import Chat
from deepinfer_recipe_bridge.messages import Messages
from deepinfer_recipe_bridge.options import ChatOptions, MessagesOptions, ResponsesOptions
from deepinfer_recipe_bridge.responses import Responses
from deepinfer_recipe_bridge.surface import Surface
from scripted import MODEL, THINK_END, Reply, ScriptedEngine, ask, endpoint_of, tokens_of

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


FAILED = EngineError("the device broke")


def test_what_fails_within_a_stream_of_chat_ends_it_without_done() -> None:
    engine = ScriptedEngine(steps=[tokens_of("ab")], failure=FAILED)
    reply = ask(CHAT, body_of(CHAT, stream=True), engine)
    assert reply.events[-1][1]["error"]["type"] == "server_error"
    assert b"[DONE]" not in reply.raw
    assert b'"finish_reason":"stop"' not in reply.raw


def test_what_fails_within_a_stream_of_messages_is_an_error_event() -> None:
    engine = ScriptedEngine(steps=[tokens_of("ab")], failure=FAILED)
    reply = ask(MESSAGES, body_of(MESSAGES, stream=True), engine)
    name, data = reply.events[-1]
    assert name == "error"
    assert data["error"]["type"] == "api_error"
    assert b"message_stop" not in reply.raw


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FAILED, "server_error"),
        (EngineBusy("x"), "rate_limit_exceeded"),
        (RequestError("x"), "invalid_prompt"),
    ],
)
def test_what_fails_within_a_stream_of_responses_fails_the_response(
    error: DeepInferError, code: str
) -> None:
    engine = ScriptedEngine(steps=[tokens_of("ab")], failure=error)
    reply = ask(RESPONSES, body_of(RESPONSES, stream=True), engine)
    name, data = reply.events[-1]
    assert name == "response.failed"
    assert [one["sequence_number"] for _, one in reply.events] == list(range(len(reply.events)))
    assert data["response"]["status"] == "failed"
    assert data["response"]["error"]["code"] == code
    assert data["response"]["id"] == reply.events[0][1]["response"]["id"]


def test_a_stream_of_responses_that_failed_before_it_began_has_an_error_event() -> None:
    event = RESPONSES._open.dialect.error_event(FAILED, 500, "never-began").decode()
    assert event.startswith("event: error\n")
    assert json.loads(event.split("data: ")[1])["type"] == "error"


def test_streams_of_responses_that_ended_are_forgotten() -> None:
    ask(RESPONSES, body_of(RESPONSES, stream=True), ScriptedEngine(steps=[tokens_of("a")]))
    assert not RESPONSES._open._open
    assert not RESPONSES._open._cut


def test_streams_that_were_cut_are_forgotten_when_others_are() -> None:
    protocol = Responses(ResponsesOptions())

    async def leave(number: int) -> None:
        call = HttpCall(
            request_id=f"r{number}",
            key_label="",
            headers={},
            path_values={},
            body=body_of(RESPONSES, stream=True, instructions="x" * 5000),
        )
        answer = await endpoint_of(protocol, engine).handle(call)
        assert isinstance(answer, EventAnswer)
        await anext(answer.events)
        await answer.events.aclose()  # type: ignore[attr-defined]

    async def leave_all() -> None:
        for number in range(70):
            await leave(number)

    engine = ScriptedEngine(steps=[tokens_of("ab")])
    asyncio.run(leave_all())
    assert not protocol._open._open
    assert list(protocol._open._cut) == [f"r{number}" for number in range(6, 70)]
    assert all(len(str(one)) < 2000 for one in protocol._open._cut.values())
    event = protocol._open.dialect.error_event(FAILED, 500, "r69").decode()
    assert json.loads(event.split("data: ")[1])["sequence_number"] == 2
    assert "r69" not in protocol._open._cut


LONG = "x" * 5000
LONG_FIELDS: dict[str, Any] = {
    "input": LONG,
    "instructions": LONG,
    "metadata": {"a": LONG},
    "include": [LONG],
    "prompt_cache_key": LONG,
    "safety_identifier": LONG,
    "service_tier": LONG,
    "truncation": LONG,
    "unknown": LONG,
    "text": {
        "format": {
            "type": "json_schema",
            "name": "a",
            "schema": {"type": "object", "description": LONG},
        }
    },
    "tools": [
        {
            "type": "function",
            "name": "f",
            "description": LONG,
            "parameters": {"type": "object"},
        }
    ],
}


@pytest.mark.parametrize("store", [0, 4])
@pytest.mark.parametrize("field", LONG_FIELDS)
def test_nothing_long_of_a_request_is_kept_beside_its_stream(field: str, store: int) -> None:
    protocol = Responses(ResponsesOptions(store_responses=store))
    engine = ScriptedEngine(steps=[tokens_of("ab")])
    body = body_of(RESPONSES, stream=True, reasoning={"effort": "none"})
    call = HttpCall(
        request_id="r",
        key_label="",
        headers={},
        path_values={},
        body=body | {field: LONG_FIELDS[field]},
    )

    async def main() -> int:
        answer = await endpoint_of(protocol, engine).handle(call)
        assert isinstance(answer, EventAnswer)
        await anext(answer.events)
        [kept] = protocol._open._open.values()
        await answer.events.aclose()  # type: ignore[attr-defined]
        return len(json.dumps(kept.response))

    assert asyncio.run(main()) < 1500


def end_of(surface: Surface, reply: Reply, *, stream: bool) -> Any:
    """The word that a protocol ends an answer with."""
    shown = reply.events if stream else [(None, reply.body)]
    if surface is RESPONSES:
        response = shown[-1][1]["response"] if stream else reply.body
        assert response["status"] == "incomplete"
        return response["incomplete_details"]["reason"]
    if surface is MESSAGES:
        return shown[-2][1]["delta"]["stop_reason"] if stream else reply.body["stop_reason"]
    return shown[-2 if stream else -1][1]["choices"][0]["finish_reason"]


ENDS = [(CHAT, "length"), (RESPONSES, "max_output_tokens"), (MESSAGES, "max_tokens")]


@pytest.mark.parametrize(("surface", "word"), ENDS)
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_was_ended_by_its_name_keeps_what_it_has_and_is_called_cut(
    surface: Surface, word: str, stream: bool
) -> None:
    steps = [[*tokens_of("so"), THINK_END], tokens_of("é")]
    engine = ScriptedEngine(steps=steps, reason="abort", aborted_by="operator")
    reply = ask(surface, body_of(surface, stream=stream), engine)
    assert reply.status == 200
    assert end_of(surface, reply, stream=stream) == word
    assert "é" in reply.raw.decode()
    assert (reply.notes.finish_reason, reply.notes.ended_by) == ("abort", "operator")


@pytest.mark.parametrize(("surface", "word"), ENDS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_was_ended_while_it_waited_is_an_empty_cut_answer(
    surface: Surface, word: str, stream: bool
) -> None:
    engine = ScriptedEngine(starts=False, reason="abort", aborted_by="operator")
    reply = ask(surface, body_of(surface, stream=stream), engine)
    assert reply.status == 200
    assert end_of(surface, reply, stream=stream) == word
    prompt = len(engine.requests[0].prompt_token_ids)
    assert (reply.notes.prompt_tokens, reply.notes.completion_tokens) == (prompt, 0)
    assert reply.notes.queue_s is None
    if not stream:
        usage = reply.body["usage"]
        assert prompt in (usage.get("prompt_tokens"), usage.get("input_tokens"))


@pytest.mark.parametrize("surface", [CHAT, RESPONSES, MESSAGES])
@pytest.mark.parametrize("aborted_by", ["shutdown", "deadline"])
@pytest.mark.parametrize("starts", [False, True])
def test_an_answer_that_the_service_ended_may_be_asked_for_again(
    surface: Surface, aborted_by: AbortedBy, starts: bool
) -> None:
    steps = [tokens_of("ab")] if starts else []
    ends: Any = {"reason": "abort", "aborted_by": aborted_by, "starts": starts}
    assert ask(surface, body_of(surface), ScriptedEngine(steps, **ends)).status == 503
    reply = ask(surface, body_of(surface, stream=True), ScriptedEngine(steps, **ends))
    assert reply.notes.ended_by == aborted_by
    if not starts:
        assert reply.status == 503
        return
    assert b"whole (ask again later)" in reply.raw.split(b"\n\n")[-2]
    for word in (b'"length"', b'"incomplete"', b'"max_tokens"'):
        assert word not in reply.raw
