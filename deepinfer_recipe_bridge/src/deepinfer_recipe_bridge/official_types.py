"""Which fields do the official types of responses require that deepseek-recipe leaves out?

They came to the public interfaces after it was written. All say that there is nothing of the kind:
no refusal, no citation, no price on writing to the cache. Each function changes the JSON data of a
whole response; of events, only those of Responses that carry one.
"""

from __future__ import annotations

from typing import Any

__all__ = ["complete_chat", "complete_message", "complete_response"]

Body = dict[str, Any]

_MESSAGE: Body = {"container": None, "stop_details": None}
_MESSAGE_USAGE: Body = {
    "cache_creation": None,
    "inference_geo": None,
    "output_tokens_details": None,
    "server_tool_use": None,
}
_BLOCKS: dict[str, Body] = {
    "text": {"citations": None},
    "tool_use": {"caller": {"type": "direct"}},
}


def complete_chat(response: Body) -> None:
    """Of Chat Completions."""
    for choice in response["choices"]:
        _add(choice["message"], {"refusal": None, "annotations": []})


def complete_message(message: Body) -> None:
    """Of Messages."""
    _add(message, _MESSAGE)
    _add(message["usage"], _MESSAGE_USAGE)
    for block in message["content"]:
        _add(block, _BLOCKS.get(block["type"], {}))


def complete_response(response: Body) -> None:
    """Of Responses; while it is being made it has no usage."""
    if response.get("usage"):
        _add(response["usage"]["input_tokens_details"], {"cache_write_tokens": 0})
    if response["text"].get("verbosity") is None:
        response["text"]["verbosity"] = "medium"


def _add(found: Body, fields: Body) -> None:
    for key, value in fields.items():
        found.setdefault(key, value)
