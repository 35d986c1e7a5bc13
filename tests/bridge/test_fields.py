"""Which values of which fields are taken, and which are refused, as docs/protocols.md says?"""

from typing import Any

import pytest
from deepinfer_recipe_bridge.chat import Chat
from deepinfer_recipe_bridge.messages import Messages
from deepinfer_recipe_bridge.options import ChatOptions, MessagesOptions, ResponsesOptions
from deepinfer_recipe_bridge.responses import Responses
from deepinfer_recipe_bridge.surface import Surface
from scripted import DSML, EOS, MODEL, THINK, THINK_END, ScriptedEngine, ask, tokens_of

CHAT, RESPONSES, MESSAGES = (
    Chat(ChatOptions()),
    Responses(ResponsesOptions()),
    Messages(MessagesOptions()),
)
SAID = [{"role": "user", "content": "json?"}]
OFF = {"thinking": {"type": "disabled"}}
FUNCTION = {"type": "function", "function": {"name": "f"}}
STRICT = {
    "type": "function",
    "function": {"name": "g", "strict": True, "parameters": {"type": "object", "properties": {}}},
}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "x"}


def prompt(surface: Surface, fields: dict[str, Any]) -> tuple[int, ...] | None:
    """Tokens of the prompt; None: the request is refused."""
    body: dict[str, Any] = {"model": MODEL}
    body |= {"input": "json?"} if surface is RESPONSES else {"messages": SAID}
    engine = ScriptedEngine(steps=[[EOS]])
    reply = ask(surface, body | fields, engine)
    assert reply.status in (200, 400), reply.raw
    return engine.requests[0].prompt_token_ids if reply.status == 200 else None


def said(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"messages": list(messages)} | fields


USER = SAID[0]
TAKEN: list[tuple[Surface, dict[str, Any]]] = [
    (CHAT, {"n": 1}),
    (CHAT, {"frequency_penalty": 2, "presence_penalty": -2, "logit_bias": {"1": 5}}),
    (CHAT, {"metadata": {"a": "b"}, "store": True, "functions": [], "unknown": [1]}),
    (CHAT, {"temperature": 2, "top_p": 1}),
    (CHAT, {"stop": ["x"] * 16}),
    (CHAT, {"stop": None, "seed": None, "tools": None, "max_tokens": None}),
    (CHAT, {"thinking": {"type": "adaptive"}, "reasoning_effort": "minimal"}),
    (CHAT, {"thinking": {"type": "enabled", "budget_tokens": 5}}),
    (CHAT, {"reasoning_effort": "xhigh"}),
    (CHAT, {"tools": [FUNCTION], "tool_choice": "none"}),
    (CHAT, {"tool_choice": "required"} | OFF),
    (CHAT, said(USER, CALLED, RESULT, tools=[FUNCTION])),
    (CHAT, said({"role": "user", "content": ""})),
    (CHAT, {"stream": True, "stream_options": {"include_usage": False}}),
    (RESPONSES, {"metadata": {}, "include": [], "truncation": "auto", "store": True}),
    (RESPONSES, {"parallel_tool_calls": False, "max_tool_calls": 3}),
    (RESPONSES, {"tools": [{"type": "web_search"}]}),
    (RESPONSES, {"input": [{"role": "developer", "content": "x"}]}),
    (RESPONSES, {"instructions": "be"}),
    (RESPONSES, {"text": {"format": {"type": "json_object"}}}),
    (RESPONSES, {"reasoning": {"effort": "high", "summary": "auto"}}),
    (MESSAGES, {}),
    (MESSAGES, {"max_tokens": 10**6, "top_k": 5, "container": None, "mcp_servers": []}),
    (MESSAGES, {"system": [{"type": "text", "text": "be"}]}),
    (MESSAGES, {"output_config": {"effort": "max"}}),
    (MESSAGES, {"stop_sequences": ["x"] * 16}),
    (MESSAGES, {"tools": [{"name": "f", "input_schema": {"type": "object"}, "strict": True}]}),
    (MESSAGES, said(USER, {"role": "assistant", "content": "no prefill"})),
    (
        MESSAGES,
        said(
            {
                "role": "user",
                "content": [
                    {
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": "d"},
                    }
                ],
            }
        ),
    ),
]
REFUSED: list[tuple[Surface, dict[str, Any]]] = [
    (CHAT, {"n": 0}),
    (CHAT, {"n": 2}),
    (CHAT, {"temperature": 2.1}),
    (CHAT, {"temperature": -0.1}),
    (CHAT, {"top_p": 0}),
    (CHAT, {"top_p": 1.1}),
    (CHAT, {"frequency_penalty": 2.1}),
    (CHAT, {"stop": ["x"] * 17}),
    (CHAT, {"stop": [""]}),
    (CHAT, {"logprobs": True, "top_logprobs": 21}),
    (CHAT, {"seed": -1}),
    (CHAT, {"thinking": {"type": "sometimes"}}),
    (CHAT, {"tools": [FUNCTION, FUNCTION]}),
    (CHAT, {"tools": [FUNCTION, STRICT]}),
    (CHAT, {"tools": [{"type": "function", "function": {"name": "a b"}}]}),
    (CHAT, {"tools": [{"type": "web_search"}]}),
    (CHAT, {"tools": [FUNCTION], "tool_choice": "required"}),
    (CHAT, {"response_format": {"type": "xml"}}),
    (CHAT, said({"role": "nobody", "content": "x"})),
    (CHAT, said({"role": "user", "content": None})),
    (CHAT, said(USER, {"role": "assistant", "content": None})),
    (CHAT, said(USER, {"role": "assistant", "content": "x", "tool_calls": []})),
    (CHAT, said(USER, CALLED, tools=[FUNCTION])),
    (CHAT, said(USER, RESULT, tools=[FUNCTION])),
    (CHAT, said({"role": "assistant", "content": "x", "prefix": True}, USER)),
    (
        CHAT,
        said(
            USER,
            {"role": "assistant", "content": "{", "prefix": True},
            response_format={"type": "json_object"},
        ),
    ),
    (RESPONSES, {"text": {"format": {"type": "regex", "regex": "a"}}}),
    (RESPONSES, {"max_output_tokens": 0}),
    (RESPONSES, {"input": None}),
    (MESSAGES, said()),
    (MESSAGES, {"max_tokens": 0}),
    (MESSAGES, {"stop_sequences": ["x"] * 17}),
    (MESSAGES, said({"role": "user", "content": [{"type": "search_result"}]})),
    (
        MESSAGES,
        said(USER, {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]}),
    ),
    (MESSAGES, said({"role": "nobody", "content": "x"})),
]


@pytest.mark.parametrize(("surface", "fields"), TAKEN)
def test_what_is_taken(surface: Surface, fields: dict[str, Any]) -> None:
    assert prompt(surface, fields) is not None


@pytest.mark.parametrize(("surface", "fields"), REFUSED)
def test_what_is_refused(surface: Surface, fields: dict[str, Any]) -> None:
    assert prompt(surface, fields) is None


@pytest.mark.parametrize(
    ("surface", "fields", "last"),
    [
        (CHAT, {}, THINK),
        (CHAT, OFF, THINK_END),
        (CHAT, {"reasoning_effort": "none"}, THINK_END),
        (CHAT, {"reasoning_effort": "none", "thinking": {"type": "enabled"}}, THINK),
        (CHAT, {"reasoning_effort": "high"} | OFF, THINK_END),
        (RESPONSES, {}, THINK),
        (RESPONSES, {"reasoning": {"effort": "none"}}, THINK_END),
        (MESSAGES, {}, THINK),
        (MESSAGES, OFF, THINK_END),
    ],
)
def test_what_switches_thinking(surface: Surface, fields: dict[str, Any], last: int) -> None:
    found = prompt(surface, fields)
    assert found is not None
    assert found[-1] == last


@pytest.mark.parametrize(
    ("effort", "shown"), [("low", "50"), ("medium", "75"), ("high", "75"), ("max", "100")]
)
def test_how_much_effort_the_prompt_asks_for(effort: str, shown: str) -> None:
    found = prompt(CHAT, {"reasoning_effort": effort})
    assert found is not None
    wanted = tuple(tokens_of(f"Reasoning Effort: {shown} "))
    assert any(found[i : i + len(wanted)] == wanted for i in range(len(found)))


def test_parts_of_a_message_are_joined_by_a_blank_line() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    joined = prompt(CHAT, said({"role": "user", "content": parts}))
    assert joined == prompt(CHAT, said({"role": "user", "content": "a\n\nb"}))


def test_older_reasoning_is_kept_only_where_tools_are_declared() -> None:
    turn = {"role": "assistant", "content": "x"}
    thought = turn | {"reasoning_content": "hm"}
    assert prompt(CHAT, said(USER, turn, USER)) == prompt(CHAT, said(USER, thought, USER))
    tools = {"tools": [FUNCTION]}
    with_tools = prompt(CHAT, said(USER, thought, USER) | tools)
    assert with_tools != prompt(CHAT, said(USER, turn, USER) | tools)


def test_results_of_tools_are_put_into_the_order_of_the_calls() -> None:
    calls = [CALL, CALL | {"id": "2"}]
    results = [RESULT, RESULT | {"tool_call_id": "2", "content": "y"}]
    turn = {"role": "assistant", "content": None, "tool_calls": calls}
    one = prompt(CHAT, said(USER, turn, *results, tools=[FUNCTION]))
    assert one == prompt(CHAT, said(USER, turn, *results[::-1], tools=[FUNCTION]))


def test_a_choice_of_one_tool_leaves_the_others_out() -> None:
    other = {"type": "function", "function": {"name": "other"}}
    choice = {"tool_choice": {"type": "function", "function": {"name": "f"}}} | OFF
    both = prompt(CHAT, {"tools": [FUNCTION, other]} | choice)
    assert both == prompt(CHAT, {"tools": [FUNCTION]} | choice)
    assert both is not None
    assert DSML in both[-len(" calls>\n") - 1 :]


def test_hosted_tools_of_responses_are_left_out() -> None:
    assert prompt(RESPONSES, {"tools": [{"type": "web_search"}]}) == prompt(RESPONSES, {})


def test_a_last_message_of_the_assistant_is_no_prefill_of_messages() -> None:
    found = prompt(MESSAGES, said(USER, {"role": "assistant", "content": "x"}) | OFF)
    assert found is not None
    assert found[-1] == THINK_END
    assert EOS in found
