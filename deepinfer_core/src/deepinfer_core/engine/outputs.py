"""What does a caller get back for one request?

Completions come in the order of the prompts, ``n`` for each, whatever happened to the others.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from deepinfer_core.errors import DeepInferError

__all__ = ["Completion", "Delta", "FinishReason", "Timeline", "Timings", "TokenLogprob", "Usage"]

FinishReason = Literal["stop", "length", "abort", "error"]
"""The end or a stop was met; a limit was met; the caller ended it; ``error`` says what failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """How likely one token was.

    Attributes:
        token_id: the token.
        logprob: natural log of its probability under the model's own distribution.
        processed_logprob: the same after temperature, truncation and bans; -inf if left out there.
        top: (token, logprob) of the likeliest tokens, best first, equal ones by lower id.
    """

    token_id: int
    logprob: float
    processed_logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one request.

    Of the prompt, those that are not cached were computed, those that are cached and not stored
    were found in the engine's memory.

    Attributes:
        prompt_tokens: tokens of the prompt, the beginning-of-sequence token included.
        completion_tokens: tokens that were drawn, the one that ended the request included.
        cached_tokens: prompt tokens whose cache entries were found when the request started.
        replayed_tokens: of these, tokens that were fed again to get their window keys back.
        stored_tokens: of the cached ones, those that came from a store for this request.
        peer_tokens: of these, those that came from the memory of other machines.
        has_peer_state: whether the state that it resumed from did.
        drafted_tokens: drafts that were verified.
        accepted_tokens: of these, drafts that were accepted; some may lie behind the end.
    """

    prompt_tokens: int
    completion_tokens: int = 0
    cached_tokens: int = 0
    replayed_tokens: int = 0
    stored_tokens: int = 0
    peer_tokens: int = 0
    has_peer_state: bool = False
    drafted_tokens: int = 0
    accepted_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Seconds on a monotonic clock.

    Attributes:
        load: from the call of ``LLM`` until the engine could take requests.
        first_token: from the request's arrival to its first token; None without a token.
        total: from the request's arrival to its end.
    """

    load: float
    first_token: float | None
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """When a request passed each station, in seconds of the engine's monotonic clock.

    Only differences mean something; those between requests of one engine do, too. A station that a
    request did not come to is None. Being preempted moves no station: each is passed once.

    Attributes:
        arrived_s: it was accepted.
        scheduled_s: its first row was scheduled.
        prefilled_s: the step with the last row of its prompt was known to have succeeded.
        first_token_s: its first token came.
        finished_s: it ended.
        preemptions: how often it lost its blocks and waited again.
    """

    arrived_s: float
    scheduled_s: float | None
    prefilled_s: float | None
    first_token_s: float | None
    finished_s: float
    preemptions: int = 0

    @property
    def queue_s(self) -> float | None:
        """From arrival until its first row was scheduled."""
        return None if self.scheduled_s is None else self.scheduled_s - self.arrived_s

    @property
    def prefill_s(self) -> float | None:
        """From then on until its prompt was computed."""
        if self.scheduled_s is None or self.prefilled_s is None:
            return None
        return self.prefilled_s - self.scheduled_s

    @property
    def decode_s(self) -> float | None:
        """From the first token to the end."""
        return None if self.first_token_s is None else self.finished_s - self.first_token_s

    @property
    def total_s(self) -> float:
        """From arrival to the end."""
        return self.finished_s - self.arrived_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What became of one request, or of one of the ``n`` answers that it asked for.

    Attributes:
        index: place of the prompt among the prompts of the call.
        text: the answer; empty where the checkpoint has no tokenizer. The end-of-sequence token, a
            stop token and a stop string are not part of it unless they were asked for.
        token_ids: all drawn tokens, the one that ended the request included.
        finish_reason: why it ended.
        logprobs: one for each of ``token_ids``, if asked for.
        prompt_logprobs: one for each prompt token, None for the first, if asked for.
        usage: token counts.
        timings_s: durations.
        seed: the seed that was used for this answer; with it and ``n=1`` it comes again.
        error: why the request failed, if ``finish_reason`` is ``error``; why it was ended, if it is
            ``abort`` and not its caller's wish; otherwise None.
        sample: place among the ``n`` answers to the prompt.
        timeline: when it passed each station; None if it never entered the engine.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    logprobs: tuple[TokenLogprob, ...] | None
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None
    usage: Usage
    timings_s: Timings
    seed: int | None
    error: DeepInferError | None = None
    sample: int = 0
    timeline: Timeline | None = None

    def to_json(self) -> dict[str, Any]:
        """The object that ``deepinfer generate --json`` prints; ``error`` only if there is one."""
        shown: dict[str, Any] = {
            "text": self.text,
            "token_ids": list(self.token_ids),
            "finish_reason": self.finish_reason,
            "usage": asdict(self.usage),
            "timings_s": asdict(self.timings_s),
            "seed": self.seed,
            "sample": self.sample,
        }
        if self.error is not None:
            shown["error"] = {
                "code": self.error.code,
                "message": self.error.message,
                "hint": self.error.hint,
            }
        return shown


@dataclass(slots=True)
class Delta:
    """What one step added to one request.

    A step makes one for each sequence. So that this is quick it is not frozen, and its fields may
    be given by place: a frozen one with named fields takes ten times as long to make.

    Attributes:
        index: place of the prompt among the prompts of the call.
        text: new text; it never holds a part of a stop string or of a character.
        token_ids: new tokens.
        logprobs: one for each of ``token_ids``, if asked for.
        completion: the whole result, with the last delta of a request.
        sample: place among the ``n`` answers to the prompt.
    """

    index: int
    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    completion: Completion | None = None
    sample: int = 0
