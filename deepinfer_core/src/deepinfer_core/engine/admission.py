"""May a prompt with its parameters enter the engine?

All checks of one request happen here, before it takes a place in any queue, so that a bad request
touches nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Integral

from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.sequence import Request
from deepinfer_core.errors import RequestError

__all__ = ["Rules", "admit", "checked_prompt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What holds for every request of an engine.

    Attributes:
        vocabulary: number of token ids.
        max_model_tokens: longest prompt and output together.
        eos_ids: tokens that end a sequence.
        banned_ids: tokens that are never drawn.
        has_text: there is a tokenizer.
    """

    vocabulary: int
    max_model_tokens: int
    eos_ids: frozenset[int] = frozenset()
    banned_ids: tuple[int, ...] = ()
    has_text: bool = True


def admit(
    rules: Rules,
    index: int,
    prompt: Iterable[int],
    params: SamplingParams,
    arrival_s: float,
    draw_seed: Callable[[], int],
) -> Request:
    """Check a request.

    Args:
        rules: of the engine.
        index: place among the prompts of the call.
        prompt: token ids.
        params: how to draw.
        arrival_s: monotonic clock.
        draw_seed: gives the 64-bit seed of a request that brings none.

    Raises:
        RequestError: the prompt is empty, too long or not made of token ids of this model, or the
            parameters ask for what this model cannot give.
    """
    prompt_ids = checked_prompt(rules, prompt)
    _check_ids(rules, "stop_token_ids", params.stop_ids)
    _check_ids(rules, "golden_token_ids", params.golden_ids)
    if params.stop_strings and not rules.has_text:
        raise RequestError(
            "stop strings were given, and this checkpoint has no tokenizer.json",
            hint="use stop_token_ids",
        )
    room = rules.max_model_tokens - len(prompt_ids)
    return Request(
        index=index,
        prompt_ids=prompt_ids,
        params=params,
        seed=draw_seed() if params.seed is None else int(params.seed),
        max_tokens=min(params.max_tokens, room),
        arrival_s=arrival_s,
    )


def checked_prompt(rules: Rules, prompt: Iterable[int]) -> tuple[int, ...]:
    """Token ids as a tuple of int.

    Raises:
        RequestError: no token, no room for another one, or an id out of range.
    """
    found = tuple(prompt)
    if not found:
        raise RequestError("the prompt is empty", hint="give at least one token")
    if len(found) >= rules.max_model_tokens:
        raise RequestError(
            f"the prompt has {len(found)} tokens, the engine holds {rules.max_model_tokens} "
            "with the answer",
            hint="shorten the prompt, or raise engine.max_model_len if the model allows it",
        )
    _check_ids(rules, "prompt", found)
    return tuple(int(token) for token in found)


def _check_ids(rules: Rules, name: str, ids: tuple[int, ...]) -> None:
    for place, token in enumerate(ids):
        is_integer = isinstance(token, Integral) and not isinstance(token, bool)
        if not is_integer or not 0 <= token < rules.vocabulary:
            raise RequestError(
                f"token {place} of {name} is {token!r}",
                hint=f"token ids of this model are integers from 0 to {rules.vocabulary - 1}",
            )
