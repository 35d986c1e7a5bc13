"""How does the engine get from admitted requests to results, one step at a time?

A step: the batch decides, the runner computes, each drawn token is appended and tested for an end.
The caller's thread runs the loop; there is no other.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count

from deepinfer_core.engine.admission import Rules, admit
from deepinfer_core.engine.batch import Batch
from deepinfer_core.engine.outputs import Delta, FinishReason
from deepinfer_core.engine.results import completion_of, delta_of, logprob_of, score_of
from deepinfer_core.engine.row_requests import sampled_rows
from deepinfer_core.engine.rows import RowRequest, RowResult, Runner
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.engine.text import TextStream
from deepinfer_core.engine.tokenizer import Tokenizer
from deepinfer_core.errors import DeepInferError, EngineError, RequestError
from deepinfer_core.schedule.plan import SequenceStep

__all__ = ["Engine", "Update"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What a step did to one sequence."""

    sequence_id: int
    delta: Delta


class Engine:
    """Continuous batching over one runner.

    Args:
        runner: runs the steps.
        batch: empty queues.
        rules: what holds for every request.
        tokenizer: gives text; None: all text is empty.
        load_s: seconds that loading took, for reports.
        seed: of the generator that requests without a seed draw theirs from, in the order of
            their arrival; None: the system's.
        clock_s: monotonic clock.
    """

    def __init__(
        self,
        runner: Runner,
        batch: Batch,
        rules: Rules,
        tokenizer: Tokenizer | None = None,
        *,
        load_s: float = 0.0,
        seed: int | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.runner = runner
        self.batch = batch
        self.rules = rules
        self.tokenizer = tokenizer
        self.load_s = load_s
        self.clock_s = clock_s
        self._seeds = random.SystemRandom() if seed is None else random.Random(seed)
        self._numbers = count(1)

    def submit(
        self, index: int, prompt: Iterable[int], params: SamplingParams, *, sample: int = 0
    ) -> int:
        """Let a request wait for its turn.

        Args:
            index: place among the prompts of the call, echoed in every delta.
            prompt: token ids.
            params: how to draw.
            sample: place among the ``params.n`` answers; the caller submits each of them.

        Returns:
            The number of the sequence.

        Raises:
            RequestError: the request is invalid; nothing else is affected.
        """
        arrival_s = self.clock_s()
        tokenizer = self.tokenizer if self.rules.has_text else None
        request = admit(
            self.rules,
            index,
            prompt,
            params,
            arrival_s,
            self._draw_seed,
            sample=sample,
            encode=None if tokenizer is None else tokenizer.encode,
        )
        sequence = Sequence(
            sequence_id=next(self._numbers),
            request=request,
            tokens=list(request.prompt_ids),
            text=TextStream(params.stop_strings, include_stop=params.include_stop_str_in_output),
        )
        self.batch.add(sequence)
        return sequence.sequence_id

    def step(self) -> list[Update]:
        """Run one step; no sequence may be left out for ever, so calling it often enough ends all.

        A failure of the runner ends the sequences of this step and no others.
        """
        if not len(self.batch):
            return []
        plan = self.batch.next_plan()
        sequences = [self._sequence(step) for step in plan.sequences]
        rows, owners = sampled_rows(plan, sequences, self.rules)
        try:
            results = self.runner.execute(plan, rows)
        except Exception as error:  # noqa: BLE001 - components are foreign code
            failure = _failure(error)
            return [self._finish(sequence, "error", failure) for sequence in sequences]
        for step, sequence in zip(plan.sequences, sequences, strict=True):
            sequence.computed = step.start + len(step.token_ids)
        return self._absorb_all(rows, owners, results)

    def abort(self, sequence_id: int) -> Update | None:
        """End a sequence in whatever state it is; None if it already ended."""
        sequence = self.batch.get(sequence_id)
        return None if sequence is None else self._finish(sequence, "abort")

    def reset(self) -> None:
        """Drop all sequences, after an interrupt that may have left a step half done."""
        self.batch.clear()

    def _draw_seed(self) -> int:
        return self._seeds.getrandbits(64)

    def _sequence(self, step: SequenceStep) -> Sequence:
        sequence = self.batch.get(step.sequence_id)
        assert sequence is not None
        return sequence

    def _absorb_all(
        self,
        rows: tuple[RowRequest, ...],
        owners: list[Sequence],
        results: tuple[RowResult, ...],
    ) -> list[Update]:
        updates = []
        for row, sequence, result in zip(rows, owners, results, strict=True):
            if self.batch.get(sequence.sequence_id) is None:
                continue  # an earlier row of this sequence was invalid
            if result.invalid:
                updates.append(self._finish(sequence, "error", self._invalid_row(row)))
            elif row.position < len(sequence.request.prompt_ids):
                sequence.prompt_logprobs[row.position] = score_of(result)
            else:
                updates.append(self._absorb(sequence, result))
        return updates

    def _absorb(self, sequence: Sequence, result: RowResult) -> Update:
        """Append a drawn token and test, in this order: end or stop token, stop string, length."""
        params, token = sequence.request.params, result.token_id
        if sequence.first_token_s is None:
            sequence.first_token_s = self.clock_s()
        sequence.tokens.append(token)
        if params.alternatives is not None:
            sequence.logprobs.append(logprob_of(result))
        is_stop = token in params.stop_ids
        is_end = is_stop or (token in self.rules.eos_ids and not params.ignore_eos)
        if not is_end or (is_stop and params.include_stop_str_in_output):
            is_searched = not is_end and sequence.output_count > params.min_tokens
            sequence.text.push(self._piece(sequence, token), searched=is_searched)
        if is_end or sequence.text.stopped:
            return self._finish(sequence, "stop", drawn=1)
        if sequence.output_count >= sequence.request.max_tokens:
            return self._finish(sequence, "length", drawn=1)
        return Update(sequence_id=sequence.sequence_id, delta=delta_of(sequence, drawn=1))

    def _invalid_row(self, row: RowRequest) -> DeepInferError:
        if not row.allows_any(self.rules.vocabulary):
            return RequestError(
                f"no token may be drawn at position {row.position}",
                hint="allowed_token_ids, bad_words, bad_words_ids, min_tokens, "
                "first_n_token_no_eos and engine.decode_token_blacklist leave none; loosen one",
            )
        return EngineError(
            f"the model gave no valid distribution for position {row.position}",
            hint="deepinfer checkpoint verify finds damaged weights",
        )

    def _piece(self, sequence: Sequence, token: int) -> bytes:
        if self.tokenizer is None:
            return b""
        skip_control = sequence.request.params.skip_special_tokens
        return self.tokenizer.piece(token, skip_control=skip_control)

    def _finish(
        self,
        sequence: Sequence,
        reason: FinishReason,
        error: DeepInferError | None = None,
        *,
        drawn: int = 0,
    ) -> Update:
        self.batch.remove(sequence)
        sequence.text.end()
        ended_s = self.clock_s()
        completion = completion_of(sequence, reason, error, load_s=self.load_s, ended_s=ended_s)
        delta = delta_of(sequence, drawn=drawn, completion=completion)
        return Update(sequence_id=sequence.sequence_id, delta=delta)


def _failure(error: Exception) -> DeepInferError:
    if isinstance(error, DeepInferError):
        return error
    text = " ".join(str(error).split())
    failure = EngineError(
        f"a step failed: {type(error).__name__}: {text}",
        hint="the other requests are unharmed; run with telemetry.level=debug for the traceback",
    )
    failure.__cause__ = error
    return failure
