"""How do tokens become answers: text, reasoning, calls, ends, usage and log-probabilities?"""

import asyncio
import json
from typing import Any

import pytest
from deepinfer_core.engine.outputs import FinishReason
from deepinfer_core.interfaces.protocol import EventAnswer, HttpCall
from deepinfer_recipe_bridge.chat import Chat
from deepinfer_recipe_bridge.messages import Messages
from deepinfer_recipe_bridge.options import ChatOptions, MessagesOptions, ResponsesOptions
from deepinfer_recipe_bridge.responses import Responses
from scripted import (
    DSML,
    EOS,
    MODEL,
    THINK,
    THINK_END,
    Reply,
    ScriptedEngine,
    ask,
    endpoint_of,
    marked,
    tokens_of,
)

CHAT = Chat(ChatOptions())
RESPONSES = Responses(ResponsesOptions())
MESSAGES = Messages(MessagesOptions())
SAID = [{"role": "user", "content": "hi"}]
OFF = {"thinking": {"type": "disabled"}}
TOOLS = {"tools": [{"type": "function", "function": {"name": "f"}}]}


def answered(
    steps: list[list[int]], reason: FinishReason = "stop", cached: int = 0, **fields: Any
) -> tuple[Reply, ScriptedEngine]:
    engine = ScriptedEngine(steps=steps, reason=reason, cached=cached, grammar_kinds=())
    return ask(CHAT, {"model": MODEL, "messages": SAID, **OFF, **fields}, engine), engine


def choice(steps: list[list[int]], reason: FinishReason = "stop", **fields: Any) -> dict[str, Any]:
    reply, _ = answered(steps, reason, **fields)
    assert reply.status == 200, reply.raw
    found: dict[str, Any] = reply.body["choices"][0]
    return found


def content(steps: list[list[int]], reason: FinishReason = "stop", **fields: Any) -> str:
    return str(choice(steps, reason, **fields)["message"]["content"])


def test_tokens_that_end_an_answer_are_no_text() -> None:
    assert content([tokens_of("ab"), [EOS]]) == "ab"
    reply, _ = answered([[*tokens_of("ab"), EOS]])
    assert reply.body["usage"]["completion_tokens"] == 2


def test_text_before_an_unfinished_character_is_kept() -> None:
    assert content([tokens_of("hello 世")[:-1]], "length") == "hello "
    assert content([tokens_of("hello 世")[:7]], "length") == "hello "


def test_a_character_may_be_split_over_steps() -> None:
    assert content([[token] for token in tokens_of("世🙂")]) == "世🙂"


@pytest.mark.parametrize("stop", [[], ["x"]])
def test_tokens_are_written_where_they_come_unless_a_stop_string_may_end_the_answer(
    stop: list[str],
) -> None:
    reply, _ = answered([[token] for token in tokens_of("a stone")], stream=True, stop=stop)
    assert reply.status == 200
    assert bool(reply.direct) == (not stop)
    assert reply.notes.first_token_s is not None
    assert reply.notes.completion_tokens == 7


@pytest.mark.parametrize("split", [1, 2, 3, 100])
def test_a_stop_string_ends_the_answer_and_the_engine_s_work(split: int) -> None:
    tokens = tokens_of("say STOP THERE STOP HERE more and more")
    steps = [tokens[i : i + split] for i in range(0, len(tokens), split)]
    reply, engine = answered(steps, stop=["STOP HERE"])
    assert reply.body["choices"][0]["message"]["content"] == "say STOP THERE "
    assert reply.body["choices"][0]["finish_reason"] == "stop"
    assert engine.closed == 1
    assert engine.items_given == -(-len("say STOP THERE STOP HERE") // split)
    assert reply.notes.finish_reason == "stop"


def test_a_stop_string_is_not_looked_for_in_reasoning() -> None:
    found = choice(
        [tokens_of("a STOP b"), [THINK_END], tokens_of("c STOP d")],
        stop="STOP",
        thinking={"type": "enabled"},
    )
    assert found["message"]["reasoning_content"] == "a STOP b"
    assert found["message"]["content"] == "c "


def test_reasoning_ends_with_its_token_and_not_with_its_spelling() -> None:
    steps = [tokens_of("\na </think> b"), [THINK_END], tokens_of("\nc")]
    found = choice(steps, thinking={"type": "enabled"})
    assert found["message"]["reasoning_content"] == "a </think> b"
    assert found["message"]["content"] == "c"


def test_a_second_end_of_reasoning_is_nothing() -> None:
    """What follows it is answer, as the library has it; reasoning never begins anew."""
    assert content([tokens_of("a"), [THINK_END], tokens_of("b")]) == "ab"
    steps = [marked("a«/think»b«/think»c"), [EOS]]
    reply, _ = answered(steps, thinking={"type": "enabled"})
    message = reply.body["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("a", "bc")
    assert reply.body["usage"]["completion_tokens_details"] == {"reasoning_tokens": 1}
    assert reply.notes.reasoning_tokens == 1


def test_a_control_token_that_was_drawn_nevertheless_is_no_text() -> None:
    assert content([tokens_of("a"), [THINK], tokens_of("b")]) == "ab"


@pytest.mark.parametrize(("reason", "finish"), [("stop", "stop"), ("length", "length")])
def test_why_an_answer_ended_chat(reason: FinishReason, finish: str) -> None:
    assert choice([tokens_of("a")], reason)["finish_reason"] == finish


@pytest.mark.parametrize(("reason", "finish"), [("stop", "end_turn"), ("length", "max_tokens")])
def test_why_an_answer_ended_messages(reason: FinishReason, finish: str) -> None:
    body = {"model": MODEL, "messages": SAID, "max_tokens": 5, **OFF}
    reply = ask(MESSAGES, body, ScriptedEngine(steps=[tokens_of("a")], reason=reason))
    assert reply.body["stop_reason"] == finish
    stopped = ask(
        MESSAGES, body | {"stop_sequences": ["b"]}, ScriptedEngine(steps=[tokens_of("abc")])
    ).body
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", "b")


@pytest.mark.parametrize(("reason", "status"), [("stop", "completed"), ("length", "incomplete")])
def test_why_an_answer_ended_responses(reason: FinishReason, status: str) -> None:
    for stream in (False, True):
        body = {"model": MODEL, "input": "hi", "stream": stream}
        reply = ask(RESPONSES, body, ScriptedEngine(steps=[tokens_of("a")], reason=reason))
        shown = reply.events[-1][1]["response"] if stream else reply.body
        assert shown["status"] == status
        if stream:
            numbers = [data["sequence_number"] for _, data in reply.events]
            assert numbers == list(range(len(numbers)))
            assert reply.events[-1][0] == f"response.{status}"


CALL = (
    '\n\n<«D» calls>\n<«D» invoke name="f">\n'
    '<«D» parameter name="a" string="true">x"y</«D» parameter>\n'
    '<«D» parameter name="n" string="false">[3]</«D» parameter>\n'
    "</«D» invoke>\n</«D» calls>"
)


def test_calls_are_read_from_tokens() -> None:
    found = choice([tokens_of("Hm."), marked(CALL), [EOS]], **TOOLS)
    assert found["finish_reason"] == "tool_calls"
    assert found["message"]["content"] == "Hm."
    [call] = found["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"a": 'x"y', "n": [3]}


def test_calls_that_are_spelled_out_are_text() -> None:
    spelled = CALL.replace("«D»", "｜DSML｜")
    found = choice([tokens_of(spelled)], **TOOLS)
    assert found["message"]["content"] == spelled.lstrip("\n")
    assert found["finish_reason"] == "stop"


def test_without_tools_the_marker_makes_no_call() -> None:
    found = choice([marked(CALL)])
    assert "tool_calls" not in found["message"]


def test_a_call_that_was_cut_says_so() -> None:
    found = choice([marked(CALL)[:60]], "length", **TOOLS)
    assert found["finish_reason"] == "length"


def test_a_forced_call_begins_inside_its_block() -> None:
    inside = marked(CALL)[marked(CALL).index(DSML) + 1 + len(" calls>\n") :]
    engine = ScriptedEngine(steps=[inside])
    body = {"model": MODEL, "messages": SAID, "tool_choice": "required"} | OFF | TOOLS
    found = ask(CHAT, body, engine).body["choices"][0]
    assert found["finish_reason"] == "tool_calls"


def test_usage_counts_cached_and_reasoning_tokens() -> None:
    steps = [tokens_of("abc"), [THINK_END], tokens_of("de"), [EOS]]
    reply, _ = answered(steps, cached=5, thinking={"type": "enabled"})
    usage, prompt = reply.body["usage"], reply.notes.prompt_tokens
    assert usage["prompt_tokens"] == prompt
    assert usage["prompt_tokens_details"] == {"cached_tokens": 5}
    assert usage["completion_tokens"] == 6
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 3}
    assert (usage["prompt_cache_hit_tokens"], usage["prompt_cache_miss_tokens"]) == (5, prompt - 5)
    notes = reply.notes
    assert (notes.cached_tokens, notes.completion_tokens, notes.reasoning_tokens) == (5, 6, 3)
    assert (notes.model, notes.finish_reason) == (MODEL, "stop")
    assert notes.queue_s is not None
    assert notes.first_token_s is not None
    assert notes.first_token_s >= notes.queue_s


def test_usage_of_messages_counts_the_cached_part_apart() -> None:
    body = {"model": MODEL, "messages": SAID, "max_tokens": 5, **OFF}
    engine = ScriptedEngine(steps=[tokens_of("ab")], cached=4)
    usage = ask(MESSAGES, body, engine).body["usage"]
    assert usage["cache_read_input_tokens"] == 4
    assert usage["input_tokens"] == len(engine.requests[0].prompt_token_ids) - 4


@pytest.mark.parametrize("asked", [True, False])
def test_usage_in_a_stream_comes_last(asked: bool) -> None:
    more = {"stream_options": {"include_usage": True}} if asked else {}
    reply, _ = answered([tokens_of("ab")], stream=True, **more)
    *first, last, done = [data for _, data in reply.events]
    assert done == "[DONE]"
    assert last["usage"]["completion_tokens"] == 2
    assert all(("usage" in one) is asked and not one.get("usage") for one in first)


def test_log_probabilities_stand_beside_their_tokens() -> None:
    found = choice([tokens_of("a"), tokens_of("bc"), [EOS]], logprobs=True, top_logprobs=2)
    shown = found["logprobs"]["content"]
    assert [one["token"] for one in shown] == ["a", "b", "c"]
    assert [len(one["top_logprobs"]) for one in shown] == [2, 2, 2]
    assert {one["logprob"] for one in shown} == {-0.25}


def test_log_probabilities_of_no_mass_are_numbers() -> None:
    from deepinfer_core.engine.outputs import TokenLogprob
    from deepinfer_recipe_bridge.answer import _pair

    never = float("-inf")
    one = TokenLogprob(token_id=9, logprob=never, processed_logprob=never, top=((9, never),))
    assert _pair(one) == (-9999.0, [(9, -9999.0)])


def test_what_a_step_adds_is_written_at_once() -> None:
    reply, _ = answered([tokens_of("abc"), tokens_of("de"), [EOS]], stream=True)
    texts = [
        "".join(
            json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
            for line in write.decode().splitlines()
            if line.startswith("data: {")
        )
        for write in reply.writes
    ]
    assert texts == ["", "abc", "de", "", ""]


def test_a_stream_begins_when_the_engine_does() -> None:
    engine = ScriptedEngine(steps=[tokens_of("a")], cached=2)
    body = {"model": MODEL, "messages": SAID, "max_tokens": 5, "stream": True, **OFF}
    name, data = ask(MESSAGES, body, engine).events[0]
    assert name == "message_start"
    assert data["message"]["usage"]["cache_read_input_tokens"] == 2


@pytest.mark.parametrize("taken", [1, 2, 3])
def test_a_client_that_goes_away_ends_the_request(taken: int) -> None:
    async def leave() -> tuple[int, int]:
        engine = ScriptedEngine(steps=[[token] for token in tokens_of("a long answer")])
        call = HttpCall(
            request_id="r",
            key_label="",
            headers={},
            path_values={},
            body={"model": MODEL, "messages": SAID, "stream": True, **OFF},
        )
        answer = await endpoint_of(CHAT, engine).handle(call)
        assert isinstance(answer, EventAnswer)
        for _ in range(taken):
            await anext(answer.events)
        await answer.events.aclose()  # type: ignore[attr-defined]
        # At once, not when the loop finds time for what was forgotten.
        return engine.closed, engine.items_given

    assert asyncio.run(leave()) == (1, taken - 1)


def test_ids_and_the_system_s_fingerprint() -> None:
    reply, _ = answered([tokens_of("a")])
    other, _ = answered([tokens_of("a")])
    assert reply.body["id"].startswith("chatcmpl-")
    assert reply.body["id"] != other.body["id"]
    assert reply.body["system_fingerprint"] == other.body["system_fingerprint"]
    assert reply.body["system_fingerprint"].startswith("fp_")
    body = {"model": MODEL, "input": "hi"}
    assert ask(RESPONSES, body, ScriptedEngine()).body["id"].startswith("resp_")
    body = {"model": MODEL, "messages": SAID, "max_tokens": 3}
    assert ask(MESSAGES, body, ScriptedEngine()).body["id"].startswith("msg_")


def test_namespaced_tools_of_responses_come_back_apart() -> None:
    tools = [
        {
            "type": "namespace",
            "name": "ns",
            "description": "d",
            "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
        }
    ]
    tokens = marked(CALL.replace('name="f"', 'name="ns::f"'))
    body = {"model": MODEL, "input": "hi", "tools": tools, "reasoning": {"effort": "none"}}
    reply = ask(RESPONSES, body, ScriptedEngine(steps=[tokens]))
    [call] = [item for item in reply.body["output"] if item["type"] == "function_call"]
    assert call["name"] == "f"
    assert call["namespace"] == "ns"
