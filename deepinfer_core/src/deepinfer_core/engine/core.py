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

import math
import random
import time
from collections.abc import Callable, Iterable
from itertools import count

from deepinfer_core import __version__
from deepinfer_core.engine.absorption import take_in
from deepinfer_core.engine.admission import Rules, admit
from deepinfer_core.engine.batch import Batch
from deepinfer_core.engine.deadlines import Deadlines
from deepinfer_core.engine.failures import expired, failed_step
from deepinfer_core.engine.grammar_masks import NO_GRAMMARS, Grammars
from deepinfer_core.engine.instruments import Instruments
from deepinfer_core.engine.launching import launched, sample
from deepinfer_core.engine.new_sequence import new_sequence
from deepinfer_core.engine.outputs import FinishReason
from deepinfer_core.engine.request_options import RequestOptions
from deepinfer_core.engine.results import Update, completion_of, last_delta
from deepinfer_core.engine.rows import RowResult, Runner
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.engine.standstill import stand_still
from deepinfer_core.engine.tokenizer import Tokenizer
from deepinfer_core.engine.under_way import UnderWay
from deepinfer_core.errors import DeepInferError

__all__ = ["Engine", "Update"]


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
        instruments: what it reports to; None: devices that only its ``instruments`` shows.
        clock_s: monotonic clock.
        is_asynchronous: decide and launch a step before the results of the last one are read.
        priority_boost_s: head start of one step of priority.
        grammars: constraints of requests.

    Attributes:
        started: sequences whose first row the last ``step`` launched; empty if it launched none.
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
        instruments: Instruments | None = None,
        clock_s: Callable[[], float] = time.monotonic,
        is_asynchronous: bool = True,
        priority_boost_s: float = 0.0,
        grammars: Grammars = NO_GRAMMARS,
    ) -> None:
        self.runner = runner
        self.batch = batch
        self.rules = rules
        self.tokenizer = tokenizer
        self.load_s = load_s
        self.clock_s = clock_s
        self.is_asynchronous = is_asynchronous
        self.priority_boost_s = priority_boost_s
        self.grammars = grammars
        self.instruments = instruments or Instruments(
            batch.readings, version=__version__, model="", clock_s=clock_s
        )
        self._seeds = random.SystemRandom() if seed is None else random.Random(seed)
        self._numbers = count(1)
        self._under_way: UnderWay | None = None
        self.started: list[Sequence] = []
        self._deadlines = Deadlines(lambda number: batch.get(number) is not None)
        self._ended_s = -math.inf
        """When the results of a step were last handled."""

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
        sequence = new_sequence(
            next(self._numbers),
            request,
            self.rules,
            tokenizer=self.tokenizer,
            grammars=self.grammars,
            policy=self.batch.pages.policy,
            priority_boost_s=self.priority_boost_s,
        )
        self.batch.add(sequence, leader)
        if request.options.timeout_s is not None:
            self._deadlines.add(arrival_s + request.options.timeout_s, sequence.sequence_id)
        self.instruments.arrived()
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
        self.batch.tend()
        for sequence, failure in self.grammars.failed(self.batch):
            updates.append(self._finish(sequence, "error", failure))
        before = self._under_way
        is_idle = before is None
        self._under_way = launched(self.batch, self.runner, before, self.clock_s)
        self.started = self._under_way.started if self._under_way is not None else []
        if before is not None:
            updates += self._conclude(before)
            del before  # so that its rows do not wait beside those of the next step
        if self._under_way is not None:
            self._sample(self._under_way)
            if not self.is_asynchronous:
                current, self._under_way = self._under_way, None
                updates += self._conclude(current)
        elif is_idle and not updates:
            stand_still(self.batch, self.grammars)
        if not len(self.batch):
            self._forget()
        return updates

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        exchange = self.batch.pages.exchange
        return len(self.batch) > 0 or (exchange is not None and exchange.is_busy)

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
        self._under_way, self.started = None, []
        self._deadlines.clear()
        self.grammars.release(self.batch)
        self.runner.drain()
        self.batch.clear()

    def close(self) -> None:
        """Drop all sequences, and give back threads and streams. May be called again."""
        exchange = self.batch.pages.exchange
        if exchange is not None:
            exchange.flush()
        self.reset()
        self.grammars.close()
        self.runner.close()
        if exchange is not None:
            exchange.close()

    def check_integrity(self) -> None:
        """Compare the books of blocks and slots with what everybody holds.

        Raises:
            EngineError: one is lost, or held otherwise than counted.
        """
        self.batch.check_integrity(self._under_way.launch.saved if self._under_way else ())

    def _draw_seed(self) -> int:
        return self._seeds.getrandbits(64)

    def _expire(self) -> list[Update]:
        sequences = map(self.batch.get, self._deadlines.due(self.clock_s()))
        return [self._finish(one, "error", expired(one)) for one in sequences if one is not None]

    def _sample(self, step: UnderWay) -> None:
        """Queue the sampling, now that all tokens before are known."""
        sample(step, self.runner, self.rules, self.grammars, self.clock_s)

    def _conclude(self, step: UnderWay) -> list[Update]:
        """Wait for a step and take in what it gave."""
        results: tuple[RowResult, ...] = ()
        asked_s = self.clock_s()
        try:
            if step.failure is None and step.handle is not None:
                results = self.runner.results(step.handle)
                step.given = self.runner.drafted(step.handle)
        except Exception as error:  # noqa: BLE001 - components are foreign code
            step.failure = error
        known_s, since_s = self.clock_s(), self._ended_s
        if step.failure is not None:
            self._ended_s = known_s
            return self._fail(step, failed_step(step.failure))
        step.launch.forget_plan()
        updates = take_in(step, results, known_s, self.batch, self.rules.vocabulary, self._finish)
        self._ended_s = ended_s = self.clock_s()
        facts = step.facts(since_s=since_s, asked_s=asked_s, known_s=known_s, ended_s=ended_s)
        self.instruments.stepped(facts)
        if (exchange := self.batch.pages.exchange) is not None:
            exchange.saw(facts.prompt_rows, facts.decode_rows, facts.elapsed_s)
        if self.batch.drafting is not None:
            if step.drafted:
                self.grammars.cut_drafts(step.drafted, self.batch.drafting.rule)
            self.batch.drafting.took(facts, step.given, len(step.drew))
        return updates

    def _forget(self) -> None:
        """Nobody is left to want what is under way; later work waits for it on the device."""
        step, self._under_way = self._under_way, None
        if step is not None:
            self.batch.drop_copies(step.launch)

    def _fail(self, step: UnderWay, failure: DeepInferError) -> list[Update]:
        self.batch.drop_copies(step.launch)
        alive = [sequence for sequence in step.launch.sequences if not sequence.is_gone]
        return [self._finish(sequence, "error", failure) for sequence in alive]

    def _finish(
        self,
        sequence: Sequence,
        reason: FinishReason,
        error: DeepInferError | None = None,
        *,
        drawn: int = 0,
    ) -> Update:
        self.batch.remove(sequence)
        self.grammars.release((sequence,))
        sequence.text.end()
        ended_s = self.clock_s()
        completion = completion_of(sequence, reason, error, load_s=self.load_s, ended_s=ended_s)
        assert completion.timeline is not None
        retention = sequence.request.options.retention
        self.instruments.finished(reason, completion.usage, completion.timeline, retention)
        delta = last_delta(sequence, completion, drawn=drawn)
        return Update(sequence.sequence_id, delta)
