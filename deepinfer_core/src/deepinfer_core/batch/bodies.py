"""What does the body of a request ask of the engine?

The fields are those of the public completion interfaces. A field with null is a field that is not
there. What this version cannot do is refused by name, never left out without a word; fields whose
only supported value is the default are accepted with that value, because many clients write them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from deepinfer_core.engine.body_fields import SAMPLING_FIELDS, sampling_fields
from deepinfer_core.engine.checks import (
    MAX_ALTERNATIVES,
    check_flag,
    check_integer,
    check_token_ids,
    shown,
)
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import RequestError

__all__ = ["Asked", "read_body"]

_ONLY: Mapping[str, tuple[object, ...]] = MappingProxyType(
    {
        "n": (1,),
        "best_of": (1,),
        "stream": (False,),
        "echo": (False,),
    }
)
"""Fields with one supported value."""

_UNUSED = ("user",)
"""Fields that say nothing about the answer."""

_OWN: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "completion": ("model", "prompt", "max_tokens", "logprobs"),
        "chat": (
            "model",
            "messages",
            "max_tokens",
            "max_completion_tokens",
            "logprobs",
            "top_logprobs",
        ),
    }
)

_NO_LIMIT = (1 << 31) - 1
"""A conversation without a limit ends where the engine's longest sequence does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request in the engine's terms.

    Attributes:
        prompt: a text or token ids; empty in a conversation.
        messages: of a conversation; None in a completion.
        params: how to draw; with a seed.
        model: the name that the answer repeats; empty: none was given.
    """

    prompt: str | tuple[int, ...]
    messages: Sequence[Mapping[str, Any]] | None
    params: SamplingParams
    model: str


def read_body(kind: Literal["completion", "chat"], body: Mapping[str, Any], seed: int) -> Asked:
    """Read a body.

    Args:
        kind: which of the two interfaces.
        body: fields.
        seed: for a request that brings none.

    Raises:
        RequestError: a field is unknown, unsupported or out of range; the message names it.
    """
    given = {name: value for name, value in body.items() if value is not None}
    _refuse_unknown(kind, given)
    model = given.get("model", "")
    if not isinstance(model, str):
        raise RequestError("model is no text", hint="name the model, or leave it out")
    fields: dict[str, Any] = {"seed": seed, **sampling_fields(given)}
    if kind == "chat":
        fields |= _chat_fields(given)
        messages = given.get("messages")
        if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
            raise RequestError("messages are missing or no list of objects", hint=_MESSAGES_HINT)
        return Asked(prompt=(), messages=messages, params=SamplingParams(**fields), model=model)
    fields |= _completion_fields(given)
    prompt = _prompt(given.get("prompt"))
    return Asked(prompt=prompt, messages=None, params=SamplingParams(**fields), model=model)


_MESSAGES_HINT = 'messages look like [{"role": "user", "content": "Hello"}]'


def _refuse_unknown(kind: Literal["completion", "chat"], given: Mapping[str, Any]) -> None:
    known = {*_OWN[kind], *SAMPLING_FIELDS, *_ONLY, *_UNUSED}
    if unknown := sorted(given.keys() - known):
        raise RequestError(
            f"unknown {'field' if len(unknown) == 1 else 'fields'} {', '.join(unknown)}",
            hint=f"a {kind} takes {', '.join(sorted(known))}",
        )
    for name, values in _ONLY.items():
        value = given.get(name, values[0])
        if value not in values or isinstance(value, bool) is not isinstance(values[0], bool):
            raise RequestError(f"{name} is {shown(value)}", hint=f"{name} must be {values[0]!r}")


def _completion_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if "logprobs" in given:
        check_integer("logprobs", given["logprobs"], 0, MAX_ALTERNATIVES)
        fields["logprobs"] = given["logprobs"] or True
    if "max_tokens" in given:
        fields["max_tokens"] = given["max_tokens"]
    return fields


def _chat_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    is_wanted, top = given.get("logprobs", False), given.get("top_logprobs", 0)
    check_flag("logprobs", is_wanted)
    check_integer("top_logprobs", top, 0, MAX_ALTERNATIVES)
    if top and not is_wanted:
        raise RequestError("top_logprobs is set without logprobs", hint='add "logprobs": true')
    limits = [given[name] for name in ("max_completion_tokens", "max_tokens") if name in given]
    if len(limits) == 2 and limits[0] != limits[1]:
        raise RequestError(
            f"max_completion_tokens is {shown(limits[0])} and max_tokens is {shown(limits[1])}",
            hint="both name the same thing; give one",
        )
    return {
        "logprobs": (top or True) if is_wanted else False,
        "max_tokens": limits[0] if limits else _NO_LIMIT,
    }


def _prompt(value: object) -> str | tuple[int, ...]:
    """A text or token ids; a list that holds one of these stands for it."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        value = value[0]
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or any(isinstance(item, str | list) for item in value):
        raise RequestError(
            "prompt is missing, or neither a text nor token ids",
            hint="ask for several prompts in several lines",
        )
    return check_token_ids("prompt", value)
