"""How does what a sequence went through become what its caller gets?"""

from __future__ import annotations

from typing import NamedTuple

from deepinfer_core.engine.outputs import (
    Completion,
    Delta,
    FinishReason,
    Timeline,
    Timings,
    TokenLogprob,
    Usage,
)
from deepinfer_core.engine.rows import RowResult
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.errors import DeepInferError

__all__ = ["Update", "completion_of", "last_delta", "logprob_of", "refusal", "score_of"]


class Update(NamedTuple):
    """What a step did to one sequence.

    Attributes:
        sequence_id: the engine's number.
        delta: what its caller gets.
    """

    sequence_id: int
    delta: Delta


def logprob_of(result: RowResult) -> TokenLogprob:
    """The probabilities of one row."""
    return TokenLogprob(
        token_id=result.token_id,
        logprob=result.logprob,
        processed_logprob=result.processed_logprob,
        top=result.top,
    )


def score_of(result: RowResult) -> TokenLogprob:
    """The probability of a token of the prompt; nothing was drawn, so nothing was processed."""
    return logprob_of(result._replace(processed_logprob=result.logprob))


def last_delta(sequence: Sequence, completion: Completion, *, drawn: int) -> Delta:
    """What a sequence gives at its end; takes the new text from it.

    Args:
        sequence: has ended.
        completion: the whole result.
        drawn: tokens at the end that its caller does not know yet.
    """
    return Delta(
        index=sequence.request.index,
        text=sequence.text.take(),
        token_ids=tuple(sequence.tokens[len(sequence.tokens) - drawn :]),
        logprobs=tuple(sequence.logprobs[-drawn:]) if drawn and sequence.wants_logprobs else (),
        completion=completion,
        sample=sequence.request.sample,
    )


def completion_of(
    sequence: Sequence,
    reason: FinishReason,
    error: DeepInferError | None,
    *,
    load_s: float,
    ended_s: float,
) -> Completion:
    """The whole result of a sequence that ended.

    Args:
        sequence: with all its tokens and text.
        reason: why it ended.
        error: why it failed, if it did.
        load_s: seconds that loading the engine took.
        ended_s: monotonic clock.
    """
    request = sequence.request
    params, scores = request.params, sequence.prompt_logprobs
    first_s, arrival_s = sequence.first_token_s, request.arrival_s
    prompt_logprobs = None
    if params.prompt_alternatives is not None:
        prompt_logprobs = tuple(scores.get(place) for place in range(len(request.prompt_ids)))
    return Completion(
        index=request.index,
        text=sequence.text.text,
        token_ids=sequence.output_ids,
        finish_reason=reason,
        logprobs=None if params.alternatives is None else tuple(sequence.logprobs),
        prompt_logprobs=prompt_logprobs,
        usage=Usage(
            prompt_tokens=len(request.prompt_ids),
            completion_tokens=sequence.output_count,
            cached_tokens=sequence.cached_tokens or 0,
            replayed_tokens=sequence.replayed_tokens,
            stored_tokens=sequence.stored_tokens,
            peer_tokens=sequence.peer_tokens,
            has_peer_state=sequence.has_peer_state,
            drafted_tokens=sequence.drafted_tokens,
            accepted_tokens=sequence.accepted_tokens,
        ),
        timings_s=Timings(
            load=load_s,
            first_token=None if first_s is None else first_s - arrival_s,
            total=ended_s - arrival_s,
        ),
        seed=request.seed,
        error=error,
        sample=request.sample,
        timeline=_timeline(sequence, ended_s),
    )


def _timeline(sequence: Sequence, ended_s: float) -> Timeline:
    return Timeline(
        arrived_s=sequence.request.arrival_s,
        scheduled_s=sequence.first_scheduled_s,
        prefilled_s=sequence.prefilled_s,
        first_token_s=sequence.first_token_s,
        finished_s=ended_s,
        preemptions=sequence.preemptions,
    )


def refusal(
    index: int, prompt_tokens: int, error: DeepInferError, *, load_s: float, sample: int = 0
) -> Completion:
    """The result of a request that never entered the engine."""
    return Completion(
        index=index,
        text="",
        token_ids=(),
        finish_reason="error",
        logprobs=None,
        prompt_logprobs=None,
        usage=Usage(prompt_tokens=prompt_tokens),
        timings_s=Timings(load=load_s, first_token=None, total=0.0),
        seed=None,
        error=error,
        sample=sample,
    )
