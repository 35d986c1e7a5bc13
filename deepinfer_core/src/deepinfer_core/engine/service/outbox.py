"""What does the engine's process send after a step?

Deltas gather here while the engine's thread hands them out, and leave together. Only that thread
comes here, and it never waits: sending does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from deepinfer_core.channel.language import MessageTooLarge
from deepinfer_core.engine.outputs import Completion, Delta
from deepinfer_core.engine.sequence import Sequence
from deepinfer_core.engine.service.faults import fault_of
from deepinfer_core.engine.service.messages import (
    Ended,
    Failed,
    Grown,
    Likelihood,
    StartedRow,
    StepDone,
)
from deepinfer_core.engine.service.requests import likelihood
from deepinfer_core.errors import DeepInferError, EngineError
from deepinfer_core.interfaces.async_engine import AbortedBy

__all__ = ["Outbox"]


class Outbox:
    """Gathers what happens to requests; a delta's ``index`` is the number of its request.

    Args:
        send: takes a message; raises ``MessageTooLarge`` if it is.
        left: told the number of each request that ended.
        aborted_by: tells who had a request ended.
    """

    def __init__(
        self,
        send: Callable[[StepDone], None],
        left: Callable[[int], None],
        aborted_by: Callable[[int], AbortedBy | None],
    ) -> None:
        self._send = send
        self._left = left
        self._aborted_by = aborted_by
        self._clear()

    def receive(self, delta: Delta) -> None:
        """A request got something."""
        if delta.token_ids or delta.text:
            logprobs = tuple(map(likelihood, delta.logprobs))
            self._grown.append(Grown(delta.index, delta.token_ids, delta.text, logprobs))
        completion = delta.completion
        if completion is None:
            return
        if completion.error is not None:
            self.fail(delta.index, completion.error)
            return
        by = self._aborted_by(delta.index) if completion.finish_reason == "abort" else None
        self._ended.append(_ended(delta.index, completion, by))
        self._left(delta.index)

    def fail(self, number: int, error: DeepInferError) -> None:
        """A request was refused, or failed."""
        self._failed.append(Failed(number, fault_of(error)))
        self._left(number)

    def flush(self, started: Iterable[Sequence] = ()) -> bool:
        """Send what has gathered, in one message; whether there was anything.

        Args:
            started: sequences whose first row is scheduled now.
        """
        rows = [
            StartedRow(one.request.index, len(one.request.prompt_ids), one.cached_tokens or 0)
            for one in started
        ]
        if not (rows or self._grown or self._ended or self._failed):
            return False
        step = StepDone(rows, self._grown, self._ended, self._failed)
        self._clear()
        try:
            self._send(step)
        except MessageTooLarge:
            self._send_apart(step)
        return True

    def _send_apart(self, step: StepDone) -> None:
        """One message for each request; one that alone is too large becomes its error."""
        lost: set[int] = set()
        self._send(StepDone(step.started, [], [], []))
        for number, part in _parts(step):
            if number in lost:
                continue
            try:
                self._send(part)
            except MessageTooLarge as error:
                lost.add(number)
                self._left(number)
                self._send(StepDone([], [], [], [Failed(number, fault_of(_too_large(error)))]))

    def _clear(self) -> None:
        self._grown: list[Grown] = []
        self._ended: list[Ended] = []
        self._failed: list[Failed] = []


def _parts(step: StepDone) -> Iterator[tuple[int, StepDone]]:
    for grown in step.grown:
        yield grown.number, StepDone([], [grown], [], [])
    for ended in step.ended:
        yield ended.number, StepDone([], [], [ended], [])
    for failed in step.failed:
        yield failed.number, StepDone([], [], [], [failed])


def _ended(number: int, completion: Completion, aborted_by: AbortedBy | None) -> Ended:
    usage, timeline = completion.usage, completion.timeline
    scores: tuple[Likelihood | None, ...] | None = None
    if completion.prompt_logprobs is not None:
        scores = tuple(
            None if one is None else likelihood(one) for one in completion.prompt_logprobs
        )
    return Ended(
        number,
        completion.finish_reason,
        usage.prompt_tokens,
        usage.cached_tokens,
        usage.completion_tokens,
        usage.drafted_tokens,
        usage.accepted_tokens,
        (timeline.queue_s if timeline else None) or 0.0,
        scores,
        aborted_by,
    )


def _too_large(error: MessageTooLarge) -> EngineError:
    return EngineError(
        f"the answer cannot be handed on: {error}",
        hint="ask for fewer tokens, or for fewer log-probabilities",
    )
