"""What waits for the consumer of one request?

At most one ``Started``, one ``Tokens`` and the end: what the consumer does not take in time grows
into one. So it is never more than the answer, and nobody waits for a consumer.

Everything happens on one event loop.
"""

from __future__ import annotations

import asyncio

from deepinfer_core.engine.outputs import TokenLogprob
from deepinfer_core.engine.service.messages import Ended, Grown, Likelihood, StartedRow
from deepinfer_core.engine.service.requests import token_logprob
from deepinfer_core.errors import DeepInferError
from deepinfer_core.interfaces.async_engine import Finished, Item, Started, Tokens

__all__ = ["LiveRequest"]


class LiveRequest:
    """One request in work.

    Args:
        number: on the channel.
        request_id: of whoever asked.

    Attributes:
        number, request_id: as given.
        is_over: nothing more comes.
    """

    __slots__ = (
        "_end", "_failure", "_logprobs", "_started", "_texts", "_token_ids", "_waiter",
        "is_over", "number", "request_id",
    )  # fmt: skip

    def __init__(self, number: int, request_id: str) -> None:
        self.number = number
        self.request_id = request_id
        self.is_over = False
        self._started: Started | None = None
        self._token_ids: list[int] = []
        self._texts: list[str] = []
        self._logprobs: list[TokenLogprob] = []
        self._end: Finished | None = None
        self._failure: DeepInferError | None = None
        self._waiter: asyncio.Future[None] | None = None

    def start(self, row: StartedRow) -> None:
        """It is scheduled."""
        self._started = Started(row.prompt_tokens, row.cached_tokens)
        self._wake()

    def grow(self, grown: Grown) -> None:
        """It got tokens."""
        self._token_ids += grown.token_ids
        self._texts.append(grown.text)
        if grown.logprobs:
            self._logprobs += map(token_logprob, grown.logprobs)
        self._wake()

    def end(self, ended: Ended) -> None:
        """It ended."""
        if self.is_over:
            return
        scores = ended.prompt_logprobs
        self._end = Finished(
            reason=ended.reason,
            prompt_tokens=ended.prompt_tokens,
            cached_tokens=ended.cached_tokens,
            completion_tokens=ended.completion_tokens,
            drafted_tokens=ended.drafted_tokens,
            accepted_tokens=ended.accepted_tokens,
            prompt_logprobs=None if scores is None else _logprobs(scores),
            queue_s=ended.queue_s,
        )
        self.is_over = True
        self._wake()

    def fail(self, failure: DeepInferError) -> None:
        """It failed; what came before can be taken first."""
        if not self.is_over:
            self._failure = failure
            self.is_over = True
            self._wake()

    async def items(self) -> list[Item]:
        """Wait until something has come; empty: there is nothing more.

        Raises:
            DeepInferError: it failed, and what came before was taken.
        """
        while not (found := self._taken()):
            if self._failure is not None:
                raise self._failure
            if self.is_over:
                break
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return found

    def _taken(self) -> list[Item]:
        found: list[Item] = []
        if self._started is not None:
            found.append(self._started)
            self._started = None
        if self._token_ids or self._texts:
            logprobs = tuple(self._logprobs)
            found.append(Tokens(tuple(self._token_ids), "".join(self._texts), logprobs))
            self._token_ids, self._texts, self._logprobs = [], [], []
        if self._end is not None:
            found.append(self._end)
            self._end = None
        return found

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _logprobs(scores: tuple[Likelihood | None, ...]) -> tuple[TokenLogprob | None, ...]:
    return tuple(None if one is None else token_logprob(one) for one in scores)
