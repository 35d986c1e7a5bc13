"""Which fields of bodies does the description of the service name?

The fields that these protocols act on, in the form that most clients send. What a body really may
hold is deepseek-recipe's affair: other fields are taken, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["CHAT", "MESSAGES", "RESPONSES"]

Schema = Mapping[str, Any]

_TEXT: Schema = {"type": "string"}
_FLAG: Schema = {"type": "boolean"}
_OBJECT: Schema = {"type": "object"}
_OBJECTS: Schema = {"type": "array", "items": _OBJECT}
_TEXTS: Schema = {"type": "array", "items": _TEXT, "maxItems": 16}
_CONTENT: Schema = {"anyOf": [_TEXT, _OBJECTS]}
_LENGTH: Schema = {"type": "integer", "minimum": 1, "maximum": 393_216}
_SHARE: Schema = {"type": "number", "exclusiveMinimum": 0, "maximum": 1}
_HEAT: Schema = {"type": "number", "minimum": 0, "maximum": 2}
_ALTERNATIVES: Schema = {"type": "integer", "minimum": 0, "maximum": 20}
_USER: Schema = {"type": "string", "maxLength": 512}


def _message(*roles: str) -> Schema:
    return {
        "type": "object",
        "properties": {"role": {"enum": list(roles)}, "content": _CONTENT},
        "required": ["role"],
    }


def _body(required: tuple[str, ...], fields: dict[str, Schema]) -> Schema:
    shared = {
        "model": _TEXT,
        "stream": _FLAG,
        "temperature": _HEAT,
        "top_p": _SHARE,
        "tools": _OBJECTS,
    }
    return {"type": "object", "properties": shared | fields, "required": ["model", *required]}


CHAT = _body(
    ("messages",),
    {
        "messages": {
            "type": "array",
            "items": _message("system", "developer", "user", "assistant", "tool"),
            "minItems": 1,
        },
        "max_tokens": _LENGTH,
        "max_completion_tokens": _LENGTH,
        "stop": {"anyOf": [_TEXT, _TEXTS]},
        "seed": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
        "logprobs": _FLAG,
        "top_logprobs": _ALTERNATIVES,
        "thinking": _OBJECT,
        "reasoning_effort": _TEXT,
        "response_format": _OBJECT,
        "tool_choice": {"anyOf": [_TEXT, _OBJECT]},
        "parallel_tool_calls": _FLAG,
        "stream_options": _OBJECT,
        "user_id": _USER,
        "user": _USER,
    },
)

RESPONSES = _body(
    (),
    {
        "input": _CONTENT,
        "instructions": _TEXT,
        "max_output_tokens": _LENGTH,
        "reasoning": _OBJECT,
        "text": _OBJECT,
        "top_logprobs": _ALTERNATIVES,
        "tool_choice": {"anyOf": [_TEXT, _OBJECT]},
        "parallel_tool_calls": _FLAG,
        "previous_response_id": _TEXT,
        "store": _FLAG,
        "user": _USER,
    },
)

MESSAGES = _body(
    ("messages",),
    {
        "messages": {"type": "array", "items": _message("user", "assistant"), "minItems": 1},
        "system": _CONTENT,
        "max_tokens": {"type": "integer", "minimum": 1},
        "stop_sequences": _TEXTS,
        "thinking": _OBJECT,
        "output_config": _OBJECT,
        "tool_choice": _OBJECT,
        "metadata": _OBJECT,
    },
)
