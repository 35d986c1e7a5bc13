"""Do whole responses have the fields of today's public types, and nothing else that is new?"""

import json
import re
from typing import Any

import pytest
from deepinfer_recipe_bridge.chat import Chat
from deepinfer_recipe_bridge.messages import Messages
from deepinfer_recipe_bridge.options import ChatOptions, MessagesOptions, ResponsesOptions
from deepinfer_recipe_bridge.responses import Responses
from scripted import MODEL, ScriptedEngine, ask, marked

SAID = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "input_tokens_details": {"cached_tokens": 7}, "const": 1.5}
CALL = (
    'so«/think»Hm é 1.0.\n\n<«D» calls>\n<«D» invoke name="f">\n'
    '<«D» parameter name="a" string="true">x</«D» parameter>\n</«D» invoke>\n</«D» calls>'
)
CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "chat": (
        Chat(ChatOptions()),
        Chat(ChatOptions(compat=False)),
        {
            "messages": SAID,
            "tools": [{"type": "function", "function": {"name": "f"}}],
            "logprobs": True,
        },
    ),
    "messages": (
        Messages(MessagesOptions()),
        Messages(MessagesOptions(compat=False)),
        {
            "messages": SAID,
            "max_tokens": 999,
            "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        },
    ),
    "responses": (
        Responses(ResponsesOptions()),
        Responses(ResponsesOptions(compat=False)),
        {"input": "hi", "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}]},
    ),
}
ADDED = {
    "chat": {"choices.0.message.refusal": None, "choices.0.message.annotations": []},
    "messages": {
        "container": None,
        "stop_details": None,
        "usage.cache_creation": None,
        "usage.inference_geo": None,
        "usage.output_tokens_details": None,
        "usage.server_tool_use": None,
        "content.1.citations": None,
        "content.2.caller": {"type": "direct"},
    },
    "responses": {"usage.input_tokens_details.cache_write_tokens": 0, "text.verbosity": "medium"},
}


def both(name: str, *, stream: bool = False) -> list[bytes]:
    """What is sent with and without ``compat``, the same ids and times in both."""
    *protocols, fields = CASES[name]
    found = []
    for protocol in protocols:
        engine = ScriptedEngine(steps=[marked(CALL)], cached=3, grammar_kinds=())
        reply = ask(protocol, {"model": MODEL, "stream": stream, **fields}, engine)
        assert reply.status == 200, reply.raw
        raw = re.sub(rb'"(created|created_at|completed_at)":\d+', rb'"\1":0', reply.raw)
        raw = re.sub(rb"(chatcmpl-|resp_|msg_)[0-9a-f]{32}", rb"\1id", raw)
        found.append(re.sub(rb"call_\d\d_\w+", b"call", raw))
    return found


def paths(value: Any, prefix: str = "") -> dict[str, Any]:
    """Every leaf by its path; an empty list or object is a leaf."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found: dict[str, Any] = {}
    for key, one in inner:
        path = f"{prefix}{key}"
        if isinstance(one, dict | list) and one and path not in ("content.2.caller",):
            found |= paths(one, f"{path}.")
        else:
            found[path] = one
    return found


@pytest.mark.parametrize("name", CASES)
def test_whole_responses_have_the_fields_of_today_s_types(name: str) -> None:

    with_compat, without = (paths(json.loads(raw)) for raw in both(name))
    changed = {
        path: value
        for path, value in with_compat.items()
        if path not in without or without[path] != value
    }
    assert changed == ADDED[name]
    assert set(without) <= set(with_compat)


@pytest.mark.parametrize("name", ["chat", "messages"])
def test_streams_are_the_library_s(name: str) -> None:
    with_compat, without = both(name, stream=True)
    assert with_compat == without


def test_events_of_responses_differ_by_the_same_fields() -> None:
    with_compat, without = both("responses", stream=True)
    without = without.replace(b'"verbosity":null', b'"verbosity":"medium"')
    usage = b'"usage":{"input_tokens":'
    place = without.rindex(usage)
    end = without.index(b"}", place)
    assert with_compat == without[:end] + b',"cache_write_tokens":0' + without[end:]


def test_there_is_nothing_to_post_to_below_responses() -> None:
    protocol = CASES["responses"][0]
    reply = ask(
        protocol,
        {},
        at="POST /v1/responses/{response_id}",
        path_values={"response_id": "compact"},
    )
    assert reply.status == 404
    assert reply.body["error"]["code"] == "not_found"
