"""What waits for the consumer of one request?

At most one delta an answer: what the consumer does not take in time grows into one. So it is never
more than the answer, and nobody waits for a consumer. The engine's thread puts in, tasks of any
loop take out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import RLock

from deepinfer_core.engine.outputs import Completion, Delta, TokenLogprob
from deepinfer_core.engine.waiters import Waiter
from deepinfer_core.errors import EngineError

__all__ = ["Inbox"]


@dataclass(slots=True, eq=False)
class _Growing:
    """Deltas of one answer, joined when they are taken: adding one costs what it is long."""

    index: int
    sample: int
    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    completion: Completion | None = None

    def add(self, delta: Delta) -> None:
        self.texts.append(delta.text)
        self.token_ids += delta.token_ids
        self.logprobs += delta.logprobs
        self.completion = delta.completion

    def joined(self) -> Delta:
        return Delta(
            index=self.index,
            text="".join(self.texts),
            token_ids=tuple(self.token_ids),
            logprobs=tuple(self.logprobs),
            completion=self.completion,
            sample=self.sample,
        )


class Inbox:
    """Deltas and completions of one request.

    Args:
        samples: answers that come.
        freed: told by the engine's thread how many answers need no place any more.
        woken: gets the tasks to wake; the engine's thread wakes them together.

    Attributes:
        has_ended: every answer has its completion, or the engine failed. Can be read without
            waiting for anything.
    """

    def __init__(
        self, samples: int, freed: Callable[[int], None], woken: Callable[[Waiter], None]
    ) -> None:
        self.has_ended = False
        self._samples = samples
        self._freed = freed
        self._woken = woken
        # Reentrant: a coroutine that is collected as garbage, in any thread, leaves the waiters.
        self._lock = RLock()
        self._growing: dict[int, _Growing] = {}
        self._completions: dict[int, Completion] = {}
        self._failure: EngineError | None = None
        self._for_delta: list[Waiter] = []
        self._for_end: list[Waiter] = []

    def receive(self, delta: Delta) -> None:
        """Add what a step gave."""
        with self._lock:
            if self.has_ended:
                return
            sample = delta.sample
            growing = self._growing.get(sample)
            if growing is None:
                growing = self._growing[sample] = _Growing(delta.index, sample)
            growing.add(delta)
            if delta.completion is not None:
                self._completions[sample] = delta.completion
                self._freed(1)
            self._end_if(len(self._completions) == self._samples)
            self._wake(self._for_delta)

    def drop(self, failure: EngineError) -> None:
        """Let whoever waits know that nothing more comes, and why."""
        with self._lock:
            if self.has_ended:
                return
            self._failure = failure
            self._freed(self._samples - len(self._completions))
            self._end_if(True)
            self._wake(self._for_delta)

    def take(self) -> Delta | None:
        """What has come and was not taken; None: nothing.

        Raises:
            EngineError: the engine failed, and what it gave before was taken.
        """
        with self._lock:
            if self._growing:
                return self._growing.pop(next(iter(self._growing))).joined()
            failure = self._failure
        if failure is not None:
            raise _again(failure)
        return None

    def completions(self) -> list[Completion]:
        """All of them, in the order of the samples, once it has ended.

        Raises:
            EngineError: the engine failed.
        """
        if self._failure is not None:
            raise _again(self._failure)
        return [self._completions[sample] for sample in range(self._samples)]

    async def changed(self, *, until_end: bool) -> None:
        """Sleep until there may be something to take, or until the end."""
        waiters = self._for_end if until_end else self._for_delta
        with self._lock:
            if self.has_ended or (self._growing and not until_end):
                return
            waiter = Waiter.here()
            waiters.append(waiter)
        try:
            await waiter.future
        finally:
            with self._lock:
                if waiter in waiters:
                    waiters.remove(waiter)

    def _end_if(self, is_end: bool) -> None:
        if is_end:
            self.has_ended = True
            self._wake(self._for_end)

    def _wake(self, waiters: list[Waiter]) -> None:
        while waiters:
            self._woken(waiters.pop())


def _again(failure: EngineError) -> EngineError:
    """A new exception, because one that is raised in several tasks collects all their frames."""
    error = EngineError(failure.message, hint=failure.hint)
    error.__cause__ = failure.__cause__
    return error
