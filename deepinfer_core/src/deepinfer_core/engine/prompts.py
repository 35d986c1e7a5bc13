"""Do the arguments of one call fit together?

Checked before anything is queued, so that a wrong call leaves no half of itself behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from deepinfer_core.engine.request_options import DEFAULT_OPTIONS, RequestOptions
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import RequestError

__all__ = ["Prompt", "pair_options", "pair_params", "read_prompts"]

Prompt = str | Sequence[int]
"""A text, or token ids."""


def read_prompts(
    prompts: str | Sequence[Prompt] | None, prompt_token_ids: Sequence[Sequence[int]] | None
) -> list[Prompt]:
    """One prompt for each request; token ids win.

    Raises:
        RequestError: neither is given, a part has another type, or the lengths differ.
    """
    if prompts is None and prompt_token_ids is None:
        raise RequestError("no prompt was given", hint="give prompts or prompt_token_ids")
    if isinstance(prompts, str):
        prompts = [prompts]
    for name, value in (("prompts", prompts), ("prompt_token_ids", prompt_token_ids)):
        if value is not None and not isinstance(value, Iterable):
            raise _wrong_type(name, value)
    given = (
        None if prompts is None else [_read(item, "prompts", i) for i, item in enumerate(prompts)]
    )
    if prompt_token_ids is None:
        return given or []
    ids = [_read(item, "prompt_token_ids", i) for i, item in enumerate(prompt_token_ids)]
    for place, item in enumerate(ids):
        if isinstance(item, str):
            raise _wrong_type(f"prompt_token_ids[{place}]", item)
    if given is not None and len(given) != len(ids):
        raise RequestError(
            f"{len(given)} prompts and {len(ids)} lists of token ids were given",
            hint="give as many of each, or only one kind",
        )
    return ids


def pair_params(
    params: SamplingParams | Sequence[SamplingParams] | None, count: int
) -> list[SamplingParams]:
    """Parameters for each of ``count`` requests.

    Raises:
        RequestError: another type, or another number.
    """
    return _pair(SamplingParams() if params is None else params, count, _PARAMS)


def pair_options(
    options: RequestOptions | Sequence[RequestOptions] | None, count: int
) -> list[RequestOptions]:
    """Options for each of ``count`` requests; raises like ``pair_params``."""
    return _pair(DEFAULT_OPTIONS if options is None else options, count, _OPTIONS)


_PARAMS = ("sampling_params", SamplingParams)
_OPTIONS = ("options", RequestOptions)

_Given = TypeVar("_Given")


def _pair(given: object, count: int, expected: tuple[str, type[_Given]]) -> list[_Given]:
    name, kind = expected
    hint = f"give {kind.__name__}, or a list of them"
    if isinstance(given, Mapping):
        hint = f"give {kind.__name__}(...) with these values as keywords, or a list of them"
    if isinstance(given, kind):
        return [given] * count
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise RequestError(f"{name} is of type {type(given).__name__}", hint=hint)
    found: list[_Given] = []
    for place, item in enumerate(given):
        if not isinstance(item, kind):
            raise RequestError(f"{name}[{place}] is a {type(item).__name__}", hint=hint)
        found.append(item)
    if len(found) != count:
        raise RequestError(
            f"{len(found)} {name} were given for {count} prompts",
            hint="give one for all, or one for each",
        )
    return found


def _read(item: object, name: str, place: int) -> Prompt:
    if isinstance(item, str):
        return item
    if isinstance(item, bytes | Mapping) or not isinstance(item, Iterable):
        raise _wrong_type(f"{name}[{place}]", item)
    return tuple(item)


def _wrong_type(name: str, item: object) -> RequestError:
    return RequestError(
        f"{name} is of type {type(item).__name__}",
        hint="prompts are texts or lists of token ids; prompt_token_ids are lists of token ids",
    )
