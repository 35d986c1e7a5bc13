"""A conversation has the tokens that a chat is answered from, and none where a chat is refused."""

import json
from typing import Any

import httpx2
import pytest
from deepinfer_core.config.server import ServerSettings
from deepinfer_core.interfaces.protocol import Protocol
from deepinfer_core.server.app import App, AppParts
from deepinfer_core.server.completions.protocol import CompletionsProtocol
from deepinfer_core.server.protocols import ServedProtocol
from deepinfer_core.testing.served import served
from deepinfer_recipe_bridge.chat import Chat
from deepinfer_recipe_bridge.messages import Messages
from deepinfer_recipe_bridge.options import ChatOptions, MessagesOptions
from scripted import EOS, ScriptedEngine
from serving import run

NAMES = ("m", "other")
SAID = [{"role": "user", "content": "json </think> please"}]
POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
NESTED = {
    "type": "object",
    "properties": {"at": {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}]}},
    "required": ["at"],
    "$defs": {"Point": POINT},
}
TOOL = {"type": "function", "function": {"name": "f", "strict": True, "parameters": NESTED}}

BODIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "another name": {"model": "other"},
    "no thinking": {"thinking": {"type": "disabled"}},
    "effort": {"reasoning_effort": "max"},
    "developer": {"messages": [{"role": "developer", "content": "Be brief."}, *SAID]},
    "strict tools": {"tools": [TOOL]},
    "forced call": {
        "tools": [TOOL], "tool_choice": "required", "thinking": {"type": "disabled"},
    },
    "schema": {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "a", "strict": True, "schema": NESTED},
        }
    },
    "prefix": {"messages": [*SAID, {"role": "assistant", "content": "So", "prefix": True}]},
    "limits": {"max_tokens": 7, "stop": ["a"], "user": "u"},
}  # fmt: skip

REFUSED: dict[str, dict[str, Any]] = {
    "unknown model": {"model": "gpt"},
    "no messages": {"messages": []},
    "unknown role": {"messages": [{"role": "boss", "content": "a"}]},
    "image": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
                ],
            }
        ]
    },
    "too many tools": {
        "tools": [{"type": "function", "function": {"name": f"f{i}"}} for i in range(129)]
    },
    "surrogate": {"messages": [{"role": "user", "content": "\ud800"}]},
}


def answers(
    body: dict[str, Any], options: ChatOptions | None = None, *, with_chat: bool = True
) -> tuple[tuple[int, Any], tuple[int, Any], list[int]]:
    """Status and body of a chat and of ``/tokenize``, and the tokens that the chat asked with."""
    engine = ScriptedEngine(steps=[[EOS]])
    protocols: dict[str, Protocol] = {
        "core.completions": CompletionsProtocol(),
        "bridge.messages": Messages(MessagesOptions()),
    }
    if with_chat:
        protocols["bridge.chat"] = Chat(options or ChatOptions())
    settings = ServerSettings()
    app = App(
        AppParts(
            engine=engine,
            settings=settings,
            protocols=[
                ServedProtocol(name=name, distribution="", options={}, protocol=protocol)
                for name, protocol in protocols.items()
            ],
            model_names=NAMES,
        )
    )

    async def both() -> list[httpx2.Response]:
        async with served(app, settings) as url, httpx2.AsyncClient(base_url=url) as client:
            headers = {"content-type": "application/json"}
            return [
                await client.post(path, content=json.dumps(body), headers=headers)
                for path in ("/v1/chat/completions", "/tokenize")
            ]

    chat, tokens = run(both)
    app.close()
    ids = list(engine.requests[0].prompt_token_ids) if engine.requests else []
    return (chat.status_code, chat.json()), (tokens.status_code, tokens.json()), ids


@pytest.mark.parametrize("name", BODIES)
def test_tokens_are_those_that_a_chat_is_answered_from(name: str) -> None:
    chat, tokens, ids = answers({"model": "m", "messages": SAID} | BODIES[name])
    assert chat[0] == 200, chat
    assert tokens == (200, {"count": len(ids), "max_model_len": 1_000_000, "tokens": ids})
    assert ids


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_chat_refuses_has_no_tokens(name: str) -> None:
    chat, tokens, _ = answers({"model": "m", "messages": SAID} | REFUSED[name])
    assert chat[0] == tokens[0] == 400
    assert chat[1]["error"]["message"] == tokens[1]["error"]["message"]


def test_options_of_the_protocol_count_here_too() -> None:
    body = {"model": "m"} | BODIES["developer"]
    chat, tokens, _ = answers(body, ChatOptions(compat=False))
    assert chat[0] == tokens[0] == 400


def test_a_conversation_without_a_model_is_one_for_the_only_model_there_is() -> None:
    _, named, ids = answers({"model": "m", "messages": SAID})
    _, unnamed, _ = answers({"messages": SAID})
    assert named[1] == unnamed[1]
    assert named[1]["tokens"] == ids


def test_without_a_chat_there_are_no_tokens_of_one() -> None:
    _, tokens, _ = answers({"model": "m", "messages": SAID}, with_chat=False)
    assert tokens[0] == 400
    assert "bridge.chat" in tokens[1]["error"]["message"]
