"""What do a step's results do to its sequences, and which of them end?"""

from __future__ import annotations

from typing import Protocol

from deepinfer_core.engine.batch import Batch
from deepinfer_core.engine.drafts.accepted import accepted_drafts
from deepinfer_core.engine.failures import invalid_row
from deepinfer_core.engine.outputs import Delta, FinishReason, TokenLogprob
from deepinfer_core.engine.results import Update, logprob_of, score_of
from deepinfer_core.engine.rows import RowResult
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.engine.under_way import UnderWay
from deepinfer_core.errors import DeepInferError

__all__ = ["Finish", "absorb", "take_in"]


class Finish(Protocol):
    """Ends a sequence."""

    def __call__(
        self,
        sequence: Sequence,
        reason: FinishReason,
        error: DeepInferError | None = None,
        *,
        drawn: int = 0,
    ) -> Update:
        """End it and give its last update.

        Args:
            sequence: in work.
            reason: why it ends.
            error: why it failed, if it did.
            drawn: tokens that its caller does not know yet.
        """


def take_in(
    step: UnderWay,
    results: tuple[RowResult, ...],
    known_s: float,
    batch: Batch,
    vocabulary: int,
    finish: Finish,
) -> list[Update]:
    """Commit the rows of a step that succeeded, take in what it drew, and what it drafted.

    Sequences whose grammar broke end before that.

    Args:
        step: notes who drew, and what became of drafts.
        results: one for each sampled row.
        known_s: when they came; monotonic clock.
        batch: the queues.
        vocabulary: number of token ids.
        finish: called for each sequence that ends.
    """
    for sequence, result in zip(step.owners, results, strict=True):
        if result.invalid:
            sequence.is_exact = False  # what it computed is shared with nobody
    drafting = step.launch.drafting
    if drafting is None:
        batch.commit(step.launch, known_s)
    else:
        accepted, step.outcomes = accepted_drafts(
            step.rows, step.owners, results, has_overlaps=drafting.rule == "ratio"
        )
        batch.commit(step.launch, known_s, accepted)
    broken = [one for one in step.broken if not one[0].is_gone]
    updates = [finish(sequence, "error", failure) for sequence, failure in broken]
    updates += absorb(step, results, known_s, vocabulary, finish)
    if drafting is not None:
        drafting.take(step.drafted, step.wanted, step.given)
        drafting.learn(step.outcomes)
    return updates


def absorb(
    step: UnderWay,
    results: tuple[RowResult, ...],
    known_s: float,
    vocabulary: int,
    finish: Finish,
) -> list[Update]:
    """Take in what a step drew and scored; notes in the step who drew a token.

    Args:
        step: its rows were committed.
        results: one for each sampled row.
        known_s: when they came; monotonic clock.
        vocabulary: number of token ids.
        finish: called for each sequence that ends.
    """
    updates: list[Update] = []
    drew = step.drew
    token_ids: tuple[int, ...] = ()
    """Of the sequence in turn, what the drafts that were accepted gave."""
    done: Sequence | None = None
    for row, sequence, result in zip(step.rows, step.owners, results, strict=True):
        if sequence.is_gone or sequence is done:
            continue  # aborted, ended by an earlier row of it, or the draft before was rejected
        if result.invalid:
            failure = invalid_row(row, vocabulary)
            updates.append(finish(sequence, "error", failure, drawn=len(token_ids)))
            token_ids = ()
            continue
        if row.position < sequence.prompt_tokens:
            sequence.prompt_logprobs[row.position] = score_of(result)
            continue
        if token_ids:
            step.more_drawn += 1
        else:
            drew.append(sequence)
            if sequence.first_token_s is None:
                sequence.first_token_s = known_s
        token_ids = (*token_ids, result.token_id)
        reason = _ends(sequence, result)
        if reason is not None:
            updates.append(finish(sequence, reason, drawn=len(token_ids)))
        elif result.accepted:
            continue
        else:
            done = sequence
            updates.append(_update(sequence, token_ids))
        token_ids = ()
    return updates


def _update(sequence: Sequence, token_ids: tuple[int, ...]) -> Update:
    """What new tokens mean to the caller of a sequence that goes on."""
    logprobs: tuple[TokenLogprob, ...] = ()
    if sequence.wants_logprobs:
        logprobs = tuple(sequence.logprobs[-len(token_ids) :])
    request = sequence.request
    delta = Delta(request.index, sequence.text.take(), token_ids, logprobs, None, request.sample)
    return Update(sequence.sequence_id, delta)


def _ends(sequence: Sequence, result: RowResult) -> FinishReason | None:
    """Append a token and test, in this order: end or stop token, stop string, length."""
    token, tokens, text, rules = result.token_id, sequence.tokens, sequence.text, sequence.rules
    tokens.append(token)
    if sequence.wants_logprobs:
        sequence.logprobs.append(logprob_of(result))
    if token in rules.end_ids:
        if token in rules.shown_end_ids:
            text.push(rules.pieces.get(token, b""), searched=False)
        return "stop"
    is_searched = len(tokens) - sequence.prompt_tokens > rules.searched_from
    text.push(rules.pieces.get(token, b""), searched=is_searched)
    if text.stopped:
        return "stop"
    return "length" if len(tokens) >= sequence.longest else None
