"""Do the arguments of one call fit together?

Checked before anything is queued, so that a wrong call leaves no half of itself behind.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import RequestError

__all__ = ["Prompt", "pair_params", "read_prompts"]

Prompt = str | Sequence[int]
"""A text, or token ids."""


def read_prompts(
    prompts: str | Sequence[str] | None, prompt_token_ids: Sequence[Sequence[int]] | None
) -> list[Prompt]:
    """One prompt for each request; token ids win.

    Raises:
        RequestError: neither is given, a part has another type, or the lengths differ.
    """
    if prompts is None and prompt_token_ids is None:
        raise RequestError("no prompt was given", hint="give prompts or prompt_token_ids")
    texts = [prompts] if isinstance(prompts, str) else None if prompts is None else list(prompts)
    for place, text in enumerate(texts or ()):
        if not isinstance(text, str):
            raise RequestError(
                f"prompt {place} is a {type(text).__name__}",
                hint="prompts are texts; token ids go into prompt_token_ids",
            )
    if prompt_token_ids is None:
        return list(texts or ())
    ids = _token_lists(prompt_token_ids)
    if texts is not None and len(texts) != len(ids):
        raise RequestError(
            f"{len(texts)} prompts and {len(ids)} lists of token ids were given",
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


def _token_lists(lists: Sequence[Sequence[int]]) -> list[Prompt]:
    found: list[Prompt] = []
    for place, ids in enumerate(lists):
        if isinstance(ids, str | bytes) or not hasattr(ids, "__iter__"):
            raise RequestError(
                f"prompt_token_ids[{place}] is a {type(ids).__name__}",
                hint="prompt_token_ids is a list with one list of ids for each prompt",
            )
        found.append(tuple(ids))
    return found
