"""What do the bodies of this protocol look like, for the description of the service?

JSON Schemas. They guide tools that read the description; what is checked is said by ``bodies``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["ABORT", "COMPLETION", "DETOKENIZE", "TOKENIZE"]

_Schema = Mapping[str, Any]

_TOKENS: _Schema = {"type": "array", "items": {"type": "integer", "minimum": 0}}
_TEXT: _Schema = {"type": "string"}
_FLAG: _Schema = {"type": ["boolean", "null"]}
_OBJECT: _Schema = {"type": ["object", "null"]}


def _number(low: float, high: float) -> _Schema:
    return {"type": ["number", "null"], "minimum": low, "maximum": high}


def _integer(low: int, high: int | None = None) -> _Schema:
    bounds = {"minimum": low} if high is None else {"minimum": low, "maximum": high}
    return {"type": ["integer", "null"], **bounds}


COMPLETION: _Schema = {
    "type": "object",
    "required": ["prompt"],
    "properties": {
        "prompt": {
            "anyOf": [
                _TEXT,
                {**_TOKENS, "minItems": 1},
                {"type": "array", "minItems": 1, "items": {"anyOf": [_TEXT, _TOKENS]}},
            ]
        },
        "model": {"type": ["string", "null"]},
        "suffix": {"type": ["string", "null"]},
        "max_tokens": _integer(0),
        "n": _integer(1, 128),
        "best_of": _integer(1, 128),
        "echo": _FLAG,
        "logprobs": _integer(0, 20),
        "stream": _FLAG,
        "stream_options": {
            "type": ["object", "null"],
            "properties": {"include_usage": _FLAG},
        },
        "temperature": _number(0, 2),
        "top_p": _number(0, 1),
        "presence_penalty": _number(-2, 2),
        "frequency_penalty": _number(-2, 2),
        "logit_bias": {
            "type": ["object", "null"],
            "propertyNames": {"pattern": "^[0-9]{1,20}$"},
            "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
            "maxProperties": 1024,
        },
        "seed": _integer(0, (1 << 64) - 1),
        "stop": {"anyOf": [{**_TEXT, "minLength": 1}, {"type": "array", "maxItems": 16}]},
        "user": {"type": ["string", "null"], "maxLength": 512},
        "top_k": _integer(-1),
        "min_p": _number(0, 1),
        "repetition_penalty": _number(0.01, 100),
        "min_tokens": _integer(0),
        "ignore_eos": _FLAG,
        "stop_token_ids": {**_TOKENS, "maxItems": 1024},
        "allowed_token_ids": {**_TOKENS, "minItems": 1},
        "bad_words": {"type": "array", "maxItems": 1024, "items": {**_TEXT, "minLength": 1}},
        "bad_words_ids": {"type": "array", "maxItems": 1024, "items": {**_TOKENS, "minItems": 1}},
        "first_n_token_no_eos": _integer(0),
        "include_stop_str_in_output": _FLAG,
        "skip_special_tokens": _FLAG,
        "grammar": _OBJECT,
        "so_args": _OBJECT,
        "response_format": _OBJECT,
        "structured_outputs": _OBJECT,
        "guided_json": {"type": ["object", "string", "null"]},
        "guided_regex": {"type": ["string", "null"]},
        "guided_choice": {"type": ["array", "null"], "items": _TEXT},
        "guided_grammar": {"type": ["string", "null"]},
    },
}
"""Of ``/v1/completions``."""

TOKENIZE: _Schema = {
    "type": "object",
    "anyOf": [{"required": ["prompt"]}, {"required": ["messages"]}],
    "properties": {
        "prompt": _TEXT,
        "messages": {"type": "array", "items": {"type": "object"}},
    },
}
"""Of ``/tokenize``; beside ``messages`` any field of a chat completion."""

DETOKENIZE: _Schema = {
    "type": "object",
    "required": ["tokens"],
    "properties": {"tokens": _TOKENS},
}
"""Of ``/detokenize``."""

ABORT: _Schema = {
    "type": "object",
    "required": ["request_id"],
    "properties": {"request_id": _TEXT},
}
"""Of ``/abort``."""
