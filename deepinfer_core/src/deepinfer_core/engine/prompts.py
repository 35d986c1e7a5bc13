"""Do the arguments of one call fit together?

Checked before anything is queued, so that a wrong call leaves no half of itself behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import RequestError

__all__ = ["Prompt", "pair_params", "read_prompts"]

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
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * count
    if not isinstance(params, Iterable):
        raise RequestError(
            f"sampling_params is of type {type(params).__name__}",
            hint="give SamplingParams, or a list of them",
        )
    found = list(params)
    for place, item in enumerate(found):
        if not isinstance(item, SamplingParams):
            raise RequestError(
                f"sampling_params[{place}] is a {type(item).__name__}",
                hint="give SamplingParams, or a list of them",
            )
    if len(found) != count:
        raise RequestError(
            f"{len(found)} sampling_params were given for {count} prompts",
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
