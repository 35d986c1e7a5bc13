"""What does a stand-in for an engine answer, token by token, with its text and figures?"""

from __future__ import annotations

import codecs
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from deepinfer_core.engine.outputs import FinishReason, TokenLogprob
from deepinfer_core.errors import DeepInferError
from deepinfer_core.interfaces.async_engine import AbortedBy, GenerateRequest, Tokens
from deepinfer_core.testing.byte_tokenizer import (
    CONTROL_TOKENS,
    FIRST_BYTE,
    VOCABULARY,
    byte_tokens,
)

__all__ = ["Answer", "Script", "made_up_logprobs", "prompt_logprobs", "random_answer", "script_of"]

_END = CONTROL_TOKENS.index("<｜end▁of▁sentence｜>")
_WORDS = ("so ", "once ", "there ", "was ", "a ", "fox, ", "naïve ", "世界 ", "🙂 ", "12 ", "\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What a request gets, whatever limits and stops it names.

    Attributes:
        steps: what each step gives.
        reason: of the end.
        aborted_by: of the end, where nobody ended the request before.
        cached: tokens of the prompt that the cache had; None: as many as it really had.
        starts: whether it has begun before its end; if not, there are no steps.
        failure: raised in place of the end.
    """

    steps: Iterable[Tokens] = ()
    reason: FinishReason = "stop"
    aborted_by: AbortedBy | None = None
    cached: int | None = None
    starts: bool = True
    failure: DeepInferError | None = None


Answer = str | Sequence[int] | Script
"""A text, which becomes one token for each byte, or token ids: the end is added where it fits."""


def random_answer(request: GenerateRequest) -> str:
    """Words that follow from seed and prompt: 8 to 40 of them, some with several bytes a letter."""
    prompt = request.prompt_token_ids
    chance = random.Random(f"{request.params.seed} {prompt}")
    return "".join(chance.choices(_WORDS, k=chance.randrange(8, 40)))


def script_of(request: GenerateRequest, answer: Answer, room: int, tokens_per_step: int) -> Script:
    """How an engine gives an answer.

    Args:
        request: with limits and stops.
        answer: to it; of a text or tokens, what lies behind an end or a limit is left out.
        room: most tokens.
        tokens_per_step: most of one step.
    """
    if isinstance(answer, Script):
        return answer
    params = request.params
    ids = byte_tokens(answer) if isinstance(answer, str) else tuple(answer)
    ends = set(params.stop_ids) | (set() if params.ignore_eos else {_END})
    ids = ids if ids and ids[-1] in ends else (*ids, _END)
    stop = next((i + 1 for i, token in enumerate(ids) if token in ends), len(ids))
    count = min(stop, room)
    text = _Text(params.stop_strings, params.skip_special_tokens)
    steps = []
    for first in range(0, count, tokens_per_step):
        last = min(first + tokens_per_step, count)
        new = "".join([text.of(token, token in ends) for token in ids[first:last]])
        new += text.rest() if last == count else ""
        scored = params.alternatives
        logprobs = () if scored is None else tuple(made_up_logprobs(ids[first:last], scored))
        steps.append(Tokens(ids[first:last], new, logprobs))
        if text.stopped:
            break
    return Script(steps=steps, reason="stop" if text.stopped or stop <= room else "length")


class _Text:
    """Text of tokens: whole characters, nothing of a stop string, no control tokens."""

    def __init__(self, stops: tuple[str, ...], skip_control: bool) -> None:
        self.stopped = False
        self._stops = stops
        self._skip_control = skip_control
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def of(self, token: int, is_end: bool) -> str:
        if self.stopped:
            return ""
        if token >= FIRST_BYTE:
            self._held += self._decoder.decode(bytes([token - FIRST_BYTE]))
        elif not self._skip_control and not is_end:
            self._held += CONTROL_TOKENS[token]
        found = [self._held.find(stop) for stop in self._stops if stop in self._held]
        if found:
            self.stopped = True
            return self._held[: min(found)]
        kept = max((self._begun(stop) for stop in self._stops), default=0)
        ready, self._held = self._held[: len(self._held) - kept], self._held[-kept:] * (kept > 0)
        return ready

    def rest(self) -> str:
        """What was held back for a stop string that did not come."""
        return "" if self.stopped else self._held + self._decoder.decode(b"", final=True)

    def _begun(self, stop: str) -> int:
        """Characters at the end that a stop string begins with."""
        return next((n for n in range(len(stop) - 1, 0, -1) if self._held.endswith(stop[:n])), 0)


def made_up_logprobs(token_ids: Sequence[int], alternatives: int) -> Iterator[TokenLogprob]:
    """Made-up figures, the same for the same token: it is the likeliest one."""
    for token in token_ids:
        others = [(token + i) % VOCABULARY for i in range(alternatives)]
        top = tuple([(other, -0.25 * (i + 1)) for i, other in enumerate(others)])
        yield TokenLogprob(token_id=token, logprob=-0.25, processed_logprob=-0.25, top=top)


def prompt_logprobs(request: GenerateRequest) -> tuple[TokenLogprob | None, ...] | None:
    """Made-up figures of the prompt, if they are asked for."""
    scored = request.params.prompt_alternatives
    if scored is None:
        return None
    return (None, *made_up_logprobs(request.prompt_token_ids[1:], scored))
