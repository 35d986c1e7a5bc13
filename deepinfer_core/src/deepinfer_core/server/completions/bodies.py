"""What does the body of a text completion ask for?

The fields are those of the public completion interface and what ``SamplingParams`` has beyond them.
A field with null is a field that is not there. What would change the answer and cannot be done here
is refused by name, also what only other servers have; what nobody knows is left alone, as clients
expect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepinfer_core.engine.body_fields import sampling_fields
from deepinfer_core.engine.checks import (
    MAX_ALTERNATIVES,
    check_flag,
    check_integer,
    check_token_ids,
    shown,
)
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import RequestError
from deepinfer_core.server.completions.foreign_fields import check_foreign_fields
from deepinfer_core.server.completions.output_form import form_fields

__all__ = ["MAX_CHOICES", "MORE_FIELDS", "CompletionAsk", "read_completion"]

MAX_CHOICES = 1024
"""Most choices of one call: prompts times ``n``."""

_MAX_SAMPLES = 128
_MAX_TOKENS = (1 << 31) - 1
_MAX_MIDDLE_TOKENS = 4096
"""Longest text that fills a gap, the limit of the public interface."""

MORE_FIELDS = (
    "allowed_token_ids", "bad_words", "bad_words_ids", "first_n_token_no_eos", "golden_token_ids",
    "include_stop_str_in_output", "seq_seed", "skip_special_tokens",
)  # fmt: skip
"""What bodies and ``SamplingParams`` share beyond ``body_fields``."""

_MOST_LISTED = 1024
_LISTS = ("logit_bias", "stop_token_ids", "bad_words", "bad_words_ids")
"""Fields with at most so many members: each costs something at every token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionAsk:
    """One call.

    Attributes:
        prompts: texts or token ids, at least one.
        suffix: text behind the gap that is to be filled; empty: there is none.
        params: how to draw, the same for every prompt.
        samples: choices for each prompt.
        has_limit: the body said how many tokens.
        is_scored_only: no token was asked for, so the one that is drawn is not shown.
        echo: the text of a choice begins with its prompt.
        stream: events are wanted.
        with_usage: an event with the usage is wanted.
        model: name as asked for; empty: none was named.
    """

    prompts: tuple[str | tuple[int, ...], ...]
    suffix: str
    params: SamplingParams
    samples: int
    has_limit: bool
    is_scored_only: bool
    echo: bool
    stream: bool
    with_usage: bool
    model: str


def read_completion(body: Mapping[str, Any]) -> CompletionAsk:
    """Read a body.

    Raises:
        RequestError: a field is missing, unsupported or out of range; the message names it.
    """
    given = {name: value for name, value in body.items() if value is not None}
    check_foreign_fields(given)
    prompts = _prompts(given.get("prompt"))
    samples = _integer(given, "n", 1, 1, _MAX_SAMPLES)
    _check_choices(given, len(prompts), samples)
    suffix = _text(given, "suffix")
    limit = _integer(given, "max_tokens", 16, 0, _MAX_MIDDLE_TOKENS if suffix else _MAX_TOKENS)
    echo = _flag(given, "echo")
    if suffix and echo:
        raise RequestError("suffix and echo were given together", hint="leave one of them out")
    stream, with_usage = _stream(given)
    return CompletionAsk(
        prompts=prompts,
        suffix=suffix,
        params=_params(given, limit, echo),
        samples=samples,
        has_limit="max_tokens" in given,
        is_scored_only=limit == 0,
        echo=echo,
        stream=stream,
        with_usage=with_usage,
        model=_text(given, "model"),
    )


def _params(given: Mapping[str, Any], limit: int, echo: bool) -> SamplingParams:
    for name in _LISTS:
        listed = given.get(name)
        if isinstance(listed, list | dict) and len(listed) > _MOST_LISTED:
            raise RequestError(
                f"{name} has {len(listed)} members", hint=f"at most {_MOST_LISTED} are taken"
            )
    fields = sampling_fields(given) | form_fields(given)
    fields |= {name: given[name] for name in MORE_FIELDS if name in given}
    if "logprobs" in given:
        check_integer("logprobs", given["logprobs"], 0, MAX_ALTERNATIVES)
        fields["logprobs"] = given["logprobs"]
        fields["prompt_logprobs"] = given["logprobs"] if echo else False
    return SamplingParams(**fields, max_tokens=max(limit, 1))


def _stream(given: Mapping[str, Any]) -> tuple[bool, bool]:
    stream = _flag(given, "stream")
    options = given.get("stream_options", {})
    if not isinstance(options, dict):
        raise RequestError("stream_options is no object", hint='give {"include_usage": true}')
    if options and not stream:
        raise RequestError("stream_options is set without stream", hint='add "stream": true')
    kept = {name: value for name, value in options.items() if value is not None}
    return stream, _flag(kept, "include_usage")


def _check_choices(given: Mapping[str, Any], prompts: int, samples: int) -> None:
    if given.get("best_of", samples) != samples or isinstance(given.get("best_of"), bool):
        raise RequestError(
            f"best_of is {shown(given['best_of'])} with n {samples}",
            hint="all drawn choices are returned: best_of must equal n, or be left out",
        )
    if prompts * samples > MAX_CHOICES:
        raise RequestError(
            f"{prompts} prompts with n {samples} are {prompts * samples} choices",
            hint=f"ask for at most {MAX_CHOICES} in one call",
        )


def _prompts(value: object) -> tuple[str | tuple[int, ...], ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not value:
        raise RequestError("prompt is missing or empty", hint=_PROMPT_HINT)
    if any(isinstance(item, str | list) for item in value):
        return tuple(_prompt(item, place) for place, item in enumerate(value))
    return (check_token_ids("prompt", value),)


def _prompt(item: object, place: int) -> str | tuple[int, ...]:
    if isinstance(item, str):
        return item
    ids = check_token_ids(f"prompt[{place}]", item)
    if not ids:
        raise RequestError(f"prompt[{place}] is empty", hint=_PROMPT_HINT)
    return ids


_PROMPT_HINT = "prompt is a text, a list of token ids, or a list of these"


def _integer(given: Mapping[str, Any], name: str, default: int, low: int, high: int) -> int:
    value = given.get(name, default)
    check_integer(name, value, low, high)
    return int(value)


def _flag(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name, False)
    check_flag(name, value)
    return bool(value)


def _text(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name, "")
    if not isinstance(value, str):
        raise RequestError(f"{name} is {shown(value)}", hint=f"{name} must be a text")
    return value
