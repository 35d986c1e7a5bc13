"""What do a step's results do to its sequences, and which of them end?"""

from __future__ import annotations

from typing import Protocol

from deepinfer_core.engine.admission import Rules
from deepinfer_core.engine.failures import invalid_row
from deepinfer_core.engine.outputs import FinishReason
from deepinfer_core.engine.results import Update, delta_of, logprob_of, score_of
from deepinfer_core.engine.rows import RowResult
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.engine.tokenizer import Tokenizer
from deepinfer_core.engine.under_way import UnderWay
from deepinfer_core.errors import DeepInferError

__all__ = ["Absorption", "Finish"]


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


class Absorption:
    """Takes results in.

    Args:
        rules: what holds for every request.
        tokenizer: gives text; None: all text is empty.
    """

    def __init__(self, rules: Rules, tokenizer: Tokenizer | None) -> None:
        self._rules = rules
        self._tokenizer = tokenizer

    def absorb(
        self, step: UnderWay, results: tuple[RowResult, ...], known_s: float, finish: Finish
    ) -> list[Update]:
        """Take in what a step drew and scored; notes in the step who drew a token.

        Args:
            step: its rows were committed.
            results: one for each sampled row.
            known_s: when they came; monotonic clock.
            finish: called for each sequence that ends.
        """
        updates = []
        for row, sequence, result in zip(step.rows, step.owners, results, strict=True):
            if sequence.is_gone:
                continue  # aborted meanwhile, or an earlier row of it was invalid
            if result.invalid:
                error = invalid_row(row, self._rules.vocabulary)
                updates.append(finish(sequence, "error", error))
            elif row.position < len(sequence.request.prompt_ids):
                sequence.prompt_logprobs[row.position] = score_of(result)
            else:
                if sequence.first_token_s is None:
                    sequence.first_token_s = known_s
                step.drew.append(sequence)
                updates.append(self._absorb(sequence, result, finish))
        return updates

    def _absorb(self, sequence: Sequence, result: RowResult, finish: Finish) -> Update:
        """Append a drawn token and test, in this order: end or stop token, stop string, length."""
        params, token = sequence.request.params, result.token_id
        sequence.open_tokens -= 1
        sequence.drawn_index = -1
        sequence.tokens.append(token)
        if params.alternatives is not None:
            sequence.logprobs.append(logprob_of(result))
        is_stop = token in params.stop_ids
        is_end = is_stop or (token in self._rules.eos_ids and not params.ignore_eos)
        if not is_end or (is_stop and params.include_stop_str_in_output):
            is_searched = not is_end and sequence.output_count > params.min_tokens
            sequence.text.push(self._piece(sequence, token), searched=is_searched)
        if is_end or sequence.text.stopped:
            return finish(sequence, "stop", drawn=1)
        if sequence.output_count >= sequence.request.max_tokens:
            return finish(sequence, "length", drawn=1)
        return Update(sequence.sequence_id, delta_of(sequence, drawn=1))

    def _piece(self, sequence: Sequence, token: int) -> bytes:
        if self._tokenizer is None:
            return b""
        skip_control = sequence.request.params.skip_special_tokens
        return self._tokenizer.piece(token, skip_control=skip_control)
