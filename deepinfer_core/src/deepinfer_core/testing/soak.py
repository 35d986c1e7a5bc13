"""Does an engine stay whole under a long mixture of all that can happen to a request?

Requests of mixed lengths come in rounds, by turns through streams of an ``LLM`` and straight into
its engine: shared beginnings, several samples, priorities, deadlines, bad prompts, steps that fail,
aborts, and streams that are left. Some are *probes*: their answer is known, and must come whatever
happens around them.

The driver keeps no answers, so that memory that grows is the engine's.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from deepinfer_core.engine.llm import LLM
from deepinfer_core.engine.outputs import Completion
from deepinfer_core.engine.request_options import RequestOptions
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import EngineError, RequestError
from deepinfer_core.testing.faulty_runner import FaultyRunner

__all__ = ["Soak", "SoakCounts"]

_TOKENS = (9, 265)
"""Ids of bytes in the tokenizer of the byte checkpoint."""
_LONG_OUTPUT = 140
"""More than a block, so that an output crosses a border of blocks wherever it begins."""


@dataclass(slots=True, kw_only=True)
class SoakCounts:
    """What happened.

    Attributes:
        requests: how many were made.
        answers: completions, by how they ended; an error by its code.
        left: answers that were not waited for, because their stream was left.
        probes: probes that ended by themselves, with the known answer.
        cached_tokens, replayed_tokens: sums over all answers.
    """

    requests: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    left: int = 0
    probes: int = 0
    cached_tokens: int = 0
    replayed_tokens: int = 0


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request, and which probe it is; -1: none."""

    prompt: list[int] | str
    params: SamplingParams
    probe: int = -1


class Soak:
    """A mixture of requests for one engine over the byte checkpoint.

    Args:
        llm: nothing runs on it; its longest sequence is 512 tokens.
        seed: of the mixture.
        failing_share: of the steps.
        round_requests: requests of a round.

    Attributes:
        counts: so far.
        faults: the runner that fails.
    """

    def __init__(
        self, llm: LLM, seed: int, *, failing_share: float = 0.002, round_requests: int = 150
    ) -> None:
        self.llm = llm
        self.round_requests = round_requests
        self.counts = SoakCounts()
        self._draw = random.Random(seed)
        self._beginnings = [self._tokens(length) for length in (128, 130, 200, 256, 300, 384)]
        self._probes = [
            _Asked(prompt, SamplingParams(seed=number, max_tokens=6, temperature=1.0), number)
            for number, prompt in enumerate(
                [self._tokens(1), self._tokens(40), *([*b, 9] for b in self._beginnings[1:4])]
            )
        ]
        self._known = [self._alone(probe) for probe in self._probes]
        self.faults = FaultyRunner(llm.engine.runner, self._draw, failing_share)
        llm.engine.runner = self.faults

    def run(self, requests: int) -> None:
        """Make so many requests, and wait until nothing runs.

        Raises:
            EngineError: a request was answered twice or never, a probe otherwise than known, or
                blocks and slots are not where the books say.
        """
        end = self.counts.requests + requests
        is_stream = True
        while self.counts.requests < end:
            count = min(self.round_requests, end - self.counts.requests)
            # A crowd of sequences that need their next block at the same time.
            share = 0.6 if self._draw.random() < 0.2 else 0.03
            asked = [self._request(share) for _ in range(count)]
            self.counts.requests += count
            if is_stream:
                self._stream_round(asked)
            else:
                self._engine_round(asked)
            is_stream = not is_stream
            self.check_rest()

    def check_rest(self) -> None:
        """Raise ``EngineError`` unless nothing runs and nothing is held."""
        batch = self.llm.engine.batch
        self.llm.engine.check_integrity()
        free, usable = batch.pages.cache.free_blocks, batch.limits.usable_blocks
        reserved = batch.pages.cache.reserved_slots
        if len(batch) or free != usable or reserved:
            raise EngineError(
                f"at rest {len(batch)} sequences are in work, {free} of {usable} blocks are free "
                f"and the slots {sorted(reserved)} are reserved"
            )

    def _stream_round(self, asked: list[_Asked]) -> None:
        """All at once through a stream; some are aborted, and one stream of ten is left early."""
        draw = self._draw
        stays = draw.random() < 0.9
        open_places = set(_places(asked))
        prompts, params = [one.prompt for one in asked], [one.params for one in asked]
        options = [self._options() for _ in asked]
        with self.llm.stream(prompts, params, options=options) as stream:
            for delta in stream:
                if delta.completion is not None:
                    self._take(open_places, asked, delta.completion)
                elif draw.random() < 0.003:
                    stream.abort(draw.randrange(len(asked)))
                elif not stays and draw.random() < 0.01:
                    break
        if stays and open_places:
            raise EngineError(f"{sorted(open_places)} of a stream were never answered")
        self.counts.left += len(open_places)

    def _engine_round(self, asked: list[_Asked]) -> None:
        """One after the other between steps; with priorities, deadlines, salts and aborts."""
        engine, draw = self.llm.engine, self._draw
        open_places = set(_places(asked))
        numbers: list[int] = []
        waiting = list(enumerate(asked))[::-1]
        while waiting or len(engine.batch):
            for _ in range(min(len(waiting), draw.randrange(12))):
                self._submit(*waiting.pop(), open_places, numbers)
            if draw.random() < 0.05 and numbers:
                update = engine.abort(draw.choice(numbers))
                if update is not None and update.delta.completion is not None:
                    self._take(open_places, asked, update.delta.completion)
            for update in engine.step() if len(engine.batch) else ():
                if update.delta.completion is not None:
                    self._take(open_places, asked, update.delta.completion)
            engine.check_integrity()
        if open_places:
            raise EngineError(f"{sorted(open_places)} of an engine were never answered")

    def _submit(
        self,
        index: int,
        asked: _Asked,
        open_places: set[tuple[int, int]],
        numbers: list[int],
    ) -> None:
        first = None
        for sample in range(asked.params.n):
            try:
                prompt = asked.prompt
                ids = self.llm.encode(prompt) if isinstance(prompt, str) else prompt
                number = self.llm.engine.submit(
                    index, ids, asked.params, sample=sample, options=self._options(), follows=first
                )
            except RequestError as error:
                open_places.remove((index, sample))
                self.counts.answers[error.code] += 1
                continue
            first = number if first is None else first
            numbers.append(number)

    def _take(
        self, open_places: set[tuple[int, int]], asked: list[_Asked], done: Completion
    ) -> None:
        place = done.index, done.sample
        if place not in open_places:
            raise EngineError(f"{place} was answered twice")
        open_places.remove(place)
        how = done.finish_reason if done.error is None else done.error.code
        self.counts.answers[how] += 1
        self.counts.cached_tokens += done.usage.cached_tokens
        self.counts.replayed_tokens += done.usage.replayed_tokens
        probe = asked[done.index].probe
        if probe >= 0 and done.finish_reason in ("stop", "length"):
            if done.token_ids != self._known[probe]:
                raise EngineError(f"probe {probe} gave {done.token_ids}: {self._known[probe]}")
            self.counts.probes += 1

    def _alone(self, probe: _Asked) -> tuple[int, ...]:
        [done] = self.llm.generate([probe.prompt], probe.params)
        return done.token_ids

    def _request(self, near_share: float) -> _Asked:
        """Any request; so many of all have a prompt that nearly fills a block."""
        draw = self._draw
        kind = draw.random()
        if kind < 0.03:
            bad: list[list[int] | str] = [[], [1 << 20], self._tokens(600), ""]
            return _Asked(draw.choice(bad), SamplingParams())
        if kind < 0.08:
            return draw.choice(self._probes)
        prompt: list[int] | str = self._tokens(draw.randint(1, 40))
        if draw.random() < near_share:
            prompt = self._tokens(draw.randint(122, 128))
        elif kind < 0.28:
            prompt = draw.choice(self._beginnings) + self._tokens(draw.randint(1, 40))
        elif kind > 0.95:
            prompt = "".join(map(chr, draw.choices(range(32, 127), k=draw.randint(1, 40))))
        return _Asked(prompt, SamplingParams(**self._fields()))

    def _fields(self) -> dict[str, Any]:
        draw = self._draw
        fields: dict[str, Any] = {
            "max_tokens": _LONG_OUTPUT if draw.random() < 0.01 else draw.randint(1, 10),
            "temperature": draw.choice([0, 0.7, 1.0]),
            "seed": draw.choice([None, draw.getrandbits(64)]),
        }
        if draw.random() < 0.1:
            fields["n"] = draw.randint(2, 4)
        if draw.random() < 0.1:
            fields["logprobs"] = draw.randint(0, 3)
        if draw.random() < 0.03:
            fields["prompt_logprobs"] = True
        if draw.random() < 0.1:
            fields |= {"stop": ["e", "th"], "repetition_penalty": 1.2, "top_p": 0.9}
        return fields

    def _options(self) -> RequestOptions:
        draw = self._draw
        return RequestOptions(
            priority=draw.randint(-3, 3),
            timeout_s=draw.uniform(0.01, 1.0) if draw.random() < 0.03 else None,
            cache_salt=draw.choice(["", "", "other"]),
        )

    def _tokens(self, count: int) -> list[int]:
        return self._draw.choices(range(*_TOKENS), k=count)


def _places(asked: list[_Asked]) -> Iterator[tuple[int, int]]:
    for index, one in enumerate(asked):
        for sample in range(one.params.n):
            yield index, sample
