"""May a prompt with its parameters enter the engine?

All checks of one request happen here, before it takes a place in any queue, so that a bad request
touches nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Integral

from deepinfer_core.engine.checks import shown
from deepinfer_core.engine.request import Request
from deepinfer_core.engine.request_options import RequestOptions
from deepinfer_core.engine.sample_seeds import sample_seed
from deepinfer_core.engine.sampling_params import SamplingParams
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
        keep_tokens: tokens at the end of a prompt that a truncated decoder half keeps; None keeps
            all.
        retention_classes: classes of traffic that a request may belong to.
    """

    vocabulary: int
    max_model_tokens: int
    eos_ids: frozenset[int] = frozenset()
    banned_ids: tuple[int, ...] = ()
    has_text: bool = True
    keep_tokens: int | None = None
    retention_classes: frozenset[str] = frozenset({"agent", "chat"})

    def keep_from(self, prompt_tokens: int) -> int:
        """First position of a prompt that the decoder half keeps."""
        return 0 if self.keep_tokens is None else max(prompt_tokens - self.keep_tokens, 0)


def admit(
    rules: Rules,
    index: int,
    prompt: Iterable[int],
    params: SamplingParams,
    arrival_s: float,
    draw_seed: Callable[[], int],
    *,
    sample: int = 0,
    options: RequestOptions | None = None,
    encode: Callable[[str], list[int]] | None = None,
) -> Request:
    """Check a request.

    Args:
        rules: of the engine.
        index: place among the prompts of the call.
        prompt: token ids.
        params: how to draw.
        arrival_s: monotonic clock.
        draw_seed: gives the 64-bit seed of a request that brings none.
        sample: place among the answers to the prompt.
        options: how it is treated beside others; None: like any other.
        encode: token ids of an ordinary text; None without a tokenizer.

    Raises:
        RequestError: the prompt is empty, too long or not made of token ids of this model, or the
            parameters ask for what this model cannot give.
    """
    prompt_ids = checked_prompt(rules, prompt)
    _check_ids(rules, "stop_token_ids", params.stop_ids)
    _check_ids(rules, "golden_token_ids", params.golden_ids)
    _check_ids(rules, "logit_bias", tuple(token for token, _ in params.biases))
    _check_ids(rules, "allowed_token_ids", params.allowed_ids or ())
    if max(map(max, params.bad_sequences), default=0) >= rules.vocabulary:
        for place, sequence in enumerate(params.bad_sequences):
            _check_ids(rules, f"bad_words_ids[{place}]", sequence)
    if params.prompt_alternatives is not None and rules.keep_from(len(prompt_ids)):
        raise RequestError(
            f"prompt_logprobs were asked for a prompt of {len(prompt_ids)} tokens, and this engine "
            f"runs the decoder half on the last {rules.keep_tokens} tokens only",
            hint='set engine.replay to "off", or score shorter prompts',
        )
    if params.stop_strings and not rules.has_text:
        raise RequestError(
            "stop strings were given, and this checkpoint has no tokenizer.json",
            hint="use stop_token_ids",
        )
    options = options or RequestOptions()
    if options.retention not in rules.retention_classes:
        raise RequestError(
            f'the traffic class "{options.retention}" was asked for',
            hint=f"classes are {', '.join(sorted(rules.retention_classes))};"
            " engine.kv_store.classes has them",
        )
    room = rules.max_model_tokens - len(prompt_ids)
    return Request(
        index=index,
        prompt_ids=prompt_ids,
        params=params,
        sample=sample,
        bad_sequences=(*params.bad_sequences, *_spellings(params.bad_texts, encode)),
        seed=draw_seed() if params.seed is None else sample_seed(int(params.seed), sample),
        max_tokens=min(params.max_tokens, room),
        arrival_s=arrival_s,
        options=options,
    )


def _spellings(
    words: tuple[str, ...], encode: Callable[[str], list[int]] | None
) -> list[tuple[int, ...]]:
    """Token ids of each word without a blank before it, and with one."""
    if not words:
        return []
    if encode is None:
        raise RequestError(
            "bad_words were given, and this checkpoint has no tokenizer.json",
            hint="use bad_words_ids",
        )
    bare = [word.removeprefix(" ") for word in words]
    return [tuple(encode(text)) for word in bare for text in (word, f" {word}")]


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
    if set(map(type, ids)) == {int} and min(ids) >= 0 and max(ids) < rules.vocabulary:
        return  # the usual case; long prompts take long to look at one by one
    for place, token in enumerate(ids):
        is_integer = isinstance(token, Integral) and not isinstance(token, bool)
        if not is_integer or not 0 <= token < rules.vocabulary:
            raise RequestError(
                f"token {place} of {name} is {shown(token)}",
                hint=f"token ids of this model are integers from 0 to {rules.vocabulary - 1}",
            )
