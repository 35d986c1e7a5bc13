"""How does the engine get from admitted requests to results, one step at a time?

A step is decided and launched, and while the device works on it the results of the step before are
read: each drawn token is appended and tested for an end. What may be drawn can depend on the token
before, so a step's sampling is queued only then; its forward pass need not wait, because it takes
the open tokens from the device. So one step is always under way, results come one call late, and a
sequence that ended is computed once more in vain.

A synchronous engine reads each step's results at once, which gives the same tokens: what a row
computes depends neither on its neighbours nor on the step it runs in.

The caller's thread runs the loop; the device may have a thread of its own.
"""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Callable, Iterable
from itertools import count
from typing import NamedTuple

from deepinfer_core.engine.admission import Rules, admit
from deepinfer_core.engine.batch import Batch, Launch
from deepinfer_core.engine.outputs import Delta, FinishReason
from deepinfer_core.engine.request_options import RequestOptions
from deepinfer_core.engine.results import completion_of, delta_of, logprob_of, score_of
from deepinfer_core.engine.row_requests import sampled_rows
from deepinfer_core.engine.rows import RowRequest, RowResult, Runner, StepHandle
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.sequence import Request, Sequence
from deepinfer_core.engine.text import TextStream
from deepinfer_core.engine.tokenizer import Tokenizer
from deepinfer_core.errors import DeadlineExceeded, DeepInferError, EngineError, RequestError
from deepinfer_core.schedule.rank import rank_of

__all__ = ["Engine", "Update"]


class Update(NamedTuple):
    """What a step did to one sequence."""

    sequence_id: int
    delta: Delta


class _UnderWay:
    """A step whose results were not read yet.

    Attributes:
        launch: what it feeds.
        handle: the runner's; None if the runner refused it.
        rows: what is sampled.
        owners: whose row each of them is.
        failure: why it failed before it ran.
    """

    __slots__ = ("failure", "handle", "launch", "owners", "rows")

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.handle: StepHandle | None = None
        self.rows: tuple[RowRequest, ...] = ()
        self.owners: list[Sequence] = []
        self.failure: Exception | None = None


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
        is_asynchronous: decide and launch a step before the results of the last one are read.
        priority_boost_s: head start of one step of priority.
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
        is_asynchronous: bool = True,
        priority_boost_s: float = 0.0,
    ) -> None:
        self.runner = runner
        self.batch = batch
        self.rules = rules
        self.tokenizer = tokenizer
        self.load_s = load_s
        self.clock_s = clock_s
        self.is_asynchronous = is_asynchronous
        self.priority_boost_s = priority_boost_s
        self._seeds = random.SystemRandom() if seed is None else random.Random(seed)
        self._numbers = count(1)
        self._under_way: _UnderWay | None = None
        self._deadlines: list[tuple[float, int]] = []

    def submit(
        self,
        index: int,
        prompt: Iterable[int],
        params: SamplingParams,
        *,
        sample: int = 0,
        options: RequestOptions | None = None,
        follows: int | None = None,
    ) -> int:
        """Let a request wait for its turn.

        Args:
            index: place among the prompts of the call, echoed in every delta.
            prompt: token ids.
            params: how to draw.
            sample: place among the ``params.n`` answers; the caller submits each of them.
            options: how it is treated beside others; None: like any other.
            follows: number of the first sample of the same prompt, whose work is shared.

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
            options=options,
            encode=None if tokenizer is None else tokenizer.encode,
        )
        leader = None if follows is None else self.batch.get(follows)
        sequence = self._sequence(request)
        self.batch.add(sequence, leader)
        if request.options.timeout_s is not None:
            deadline_s = arrival_s + request.options.timeout_s
            heapq.heappush(self._deadlines, (deadline_s, sequence.sequence_id))
        return sequence.sequence_id

    def step(self) -> list[Update]:
        """Launch a step and read the results of the last one; a failure ends its sequences only.

        Calling it often enough ends all sequences.

        Returns:
            What became known; it may be nothing.

        Raises:
            EngineError: there are sequences, and none can ever proceed.
        """
        updates = self._expire() if self._deadlines else []
        before = self._under_way
        self._under_way = self._launch(before) if len(self.batch) else None
        if before is not None:
            updates += self._conclude(before)
        if self._under_way is not None:
            self._sample(self._under_way)
            if not self.is_asynchronous:
                current, self._under_way = self._under_way, None
                updates += self._conclude(current)
        elif before is None and len(self.batch) and not updates:
            raise EngineError(f"none of {len(self.batch)} sequences can proceed")
        if not len(self.batch):
            self._forget()
        return updates

    def abort(self, sequence_id: int) -> Update | None:
        """End a sequence in whatever state it is; None if it already ended."""
        sequence = self.batch.get(sequence_id)
        if sequence is None:
            return None
        update = self._finish(sequence, "abort")
        if not len(self.batch):
            self._forget()
        return update

    def reset(self) -> None:
        """Drop all sequences, after an interrupt that may have left a step half done."""
        self._under_way = None
        self._deadlines.clear()
        self.runner.drain()
        self.batch.clear()

    def close(self) -> None:
        """Drop all sequences, and give back threads and streams. May be called again."""
        self.reset()
        self.runner.close()

    def check_integrity(self) -> None:
        """Compare the books of blocks and slots with what everybody holds.

        Raises:
            EngineError: one is lost, or held otherwise than counted.
        """
        self.batch.check_integrity(self._under_way.launch.saved if self._under_way else ())

    def _draw_seed(self) -> int:
        return self._seeds.getrandbits(64)

    def _sequence(self, request: Request) -> Sequence:
        params, number = request.params, next(self._numbers)
        options = request.options
        return Sequence(
            sequence_id=number,
            request=request,
            rank=rank_of(request.arrival_s, options.priority, number, self.priority_boost_s),
            tokens=list(request.prompt_ids),
            text=TextStream(params.stop_strings, include_stop=params.include_stop_str_in_output),
            settings=request.settings(),
            keep_from=self.rules.keep_from(len(request.prompt_ids)),
            chain=self.batch.pages.policy.chain(options.cache_salt),
        )

    def _expire(self) -> list[Update]:
        now_s, updates = self.clock_s(), []
        while self._deadlines and self._deadlines[0][0] <= now_s:
            _, number = heapq.heappop(self._deadlines)
            sequence = self.batch.get(number)
            if sequence is not None:
                updates.append(self._finish(sequence, "error", _expired(sequence)))
        return updates

    def _launch(self, before: _UnderWay | None) -> _UnderWay | None:
        launch = self.batch.launch()
        if launch is None:
            return None
        step = _UnderWay(launch)
        try:
            step.handle = self.runner.launch(launch.plan, before.handle if before else None)
        except Exception as error:  # noqa: BLE001 - components are foreign code
            step.failure = error
        return step

    def _sample(self, step: _UnderWay) -> None:
        """Queue the sampling, now that all tokens before are known."""
        launch = step.launch
        step.rows, step.owners = sampled_rows(launch.plan, launch.sequences, self.rules)
        if step.handle is None:
            return
        try:
            self.runner.sample(step.handle, step.rows)
        except Exception as error:  # noqa: BLE001 - components are foreign code
            step.failure = error

    def _conclude(self, step: _UnderWay) -> list[Update]:
        """Wait for a step and take in what it gave."""
        launch = step.launch
        results: tuple[RowResult, ...] = ()
        try:
            if step.failure is None and step.handle is not None:
                results = self.runner.results(step.handle)
        except Exception as error:  # noqa: BLE001 - components are foreign code
            step.failure = error
        if step.failure is not None:
            return self._fail(launch, _failure(step.failure))
        self._commit(launch)
        return self._absorb_all(step.rows, step.owners, results)

    def _forget(self) -> None:
        """Nobody is left to want what is under way; later work waits for it on the device."""
        step, self._under_way = self._under_way, None
        for saved in step.launch.saved if step else ():
            self.batch.pages.keep(saved, succeeded=False)

    def _fail(self, launch: Launch, failure: DeepInferError) -> list[Update]:
        for saved in launch.saved:
            self.batch.pages.keep(saved, succeeded=False)
        alive = [sequence for sequence in launch.sequences if not sequence.is_gone]
        return [self._finish(sequence, "error", failure) for sequence in alive]

    def _commit(self, launch: Launch) -> None:
        """The rows of a step are computed: let others find whole blocks and states."""
        pages, size = self.batch.pages, self.batch.limits.block_tokens
        for step, sequence, admission in zip(
            launch.plan.sequences, launch.sequences, launch.admissions, strict=True
        ):
            if sequence.is_gone or sequence.admissions != admission or not sequence.block_ids:
                continue  # what was computed is given back already
            sequence.committed = step.start + len(step.token_ids)
            if sequence.committed // size > sequence.published:
                pages.publish(sequence)
        for saved in launch.saved:
            pages.keep(saved, succeeded=True)

    def _absorb_all(
        self,
        rows: tuple[RowRequest, ...],
        owners: list[Sequence],
        results: tuple[RowResult, ...],
    ) -> list[Update]:
        updates = []
        for row, sequence, result in zip(rows, owners, results, strict=True):
            if sequence.is_gone:
                continue  # aborted meanwhile, or an earlier row of it was invalid
            if result.invalid:
                updates.append(self._finish(sequence, "error", self._invalid_row(row)))
            elif row.position < len(sequence.request.prompt_ids):
                sequence.prompt_logprobs[row.position] = score_of(result)
            else:
                sequence.open_tokens -= 1
                sequence.drawn_index = -1
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
        return Update(sequence.sequence_id, delta_of(sequence, drawn=1))

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
        return Update(sequence.sequence_id, delta)


def _expired(sequence: Sequence) -> DeepInferError:
    timeout_s = sequence.request.options.timeout_s
    return DeadlineExceeded(
        f"the request was to end within {timeout_s} s, and drew {sequence.output_count} tokens",
        hint="give it more time, or ask for fewer tokens",
    )


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
