"""What waits for the consumer of one request?

What the consumer does not take in time grows together, so it is never more than the answer and a
few pieces, and nobody waits for a consumer.

Everything happens on one event loop. What comes in time is passed on as it is, to the request's
taker if it has one, and nobody is woken then: an answer's pieces cross here hundreds of thousands
of times a minute.
"""

from __future__ import annotations

import asyncio
from collections import deque

from deepinfer_core.engine.outputs import TokenLogprob
from deepinfer_core.engine.service.messages import Ended, Grown, Likelihood, StartedRow
from deepinfer_core.engine.service.requests import token_logprob
from deepinfer_core.interfaces.async_engine import Finished, Item, Started, Taker, Tokens

__all__ = ["LiveRequest"]

_MOST_PIECES = 64
"""Pieces that may wait; then they are joined."""


class LiveRequest:
    """One request in work.

    Args:
        number: on the channel.
        request_id: of whoever asked.
        taker: see ``GenerateRequest``.

    Attributes:
        number, request_id: as given.
        is_over: nothing more comes.
    """

    __slots__ = (
        "_failure", "_first", "_last", "_pieces", "_taker", "_waiter",
        "is_over", "number", "request_id",
    )  # fmt: skip

    def __init__(self, number: int, request_id: str, taker: Taker | None = None) -> None:
        self.number = number
        self.request_id = request_id
        self._taker = taker
        self.is_over = False
        self._first: Started | None = None
        self._pieces: deque[Grown] = deque()
        self._last: Finished | None = None
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def start(self, row: StartedRow) -> None:
        """It is scheduled."""
        self._first = Started(row.prompt_tokens, row.cached_tokens)
        self._wake()

    def grow(self, piece: Grown) -> None:
        """It got tokens."""
        if self._taker is not None and self._waiter is not None and not self._waiter.done():
            # Whoever waits has taken all that came before.
            try:
                if self._taker(piece.token_ids, piece.text, _logprobs(piece)):
                    return
            except Exception as error:  # noqa: BLE001 - it fails this request, and no other
                self.fail(error)
                return
        self._pieces.append(piece)
        if len(self._pieces) > _MOST_PIECES:
            self._pieces = deque((_joined(self._pieces),))
        self._wake()

    def end(self, ended: Ended) -> None:
        """It ended."""
        if not self.is_over:
            self._last = _finished(ended)
            self.is_over = True
            self._wake()

    def fail(self, failure: Exception) -> None:
        """It failed; what came before can be taken first."""
        if not self.is_over:
            self._failure = failure
            self.is_over = True
            self._wake()

    def take(self) -> Item | None:
        """What came and was not taken; None: nothing.

        Raises:
            Exception: it failed, and what came before was taken.
        """
        if self._first is not None:
            first, self._first = self._first, None
            return first
        if self._pieces:
            piece = self._pieces[0] if len(self._pieces) == 1 else _joined(self._pieces)
            self._pieces.clear()
            return _tokens(piece)
        if self._failure is not None:
            raise self._failure
        last, self._last = self._last, None
        return last

    def changed(self) -> asyncio.Future[None]:
        """Done when something has come; to be awaited at once, where nothing could be taken."""
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _tokens(piece: Grown) -> Tokens:
    return Tokens(piece.token_ids, piece.text, _logprobs(piece))


def _logprobs(piece: Grown) -> tuple[TokenLogprob, ...]:
    return tuple(map(token_logprob, piece.logprobs)) if piece.logprobs else ()


def _joined(pieces: deque[Grown]) -> Grown:
    """One piece with all that came."""
    return Grown(
        pieces[0].number,
        tuple([token for piece in pieces for token in piece.token_ids]),
        "".join([piece.text for piece in pieces]),
        tuple([one for piece in pieces for one in piece.logprobs]),
    )


def _finished(ended: Ended) -> Finished:
    scores = ended.prompt_logprobs
    return Finished(
        reason=ended.reason,
        aborted_by=ended.aborted_by,
        prompt_tokens=ended.prompt_tokens,
        cached_tokens=ended.cached_tokens,
        completion_tokens=ended.completion_tokens,
        drafted_tokens=ended.drafted_tokens,
        accepted_tokens=ended.accepted_tokens,
        prompt_logprobs=None if scores is None else tuple(map(_score, scores)),
        queue_s=ended.queue_s,
    )


def _score(sent: Likelihood | None) -> TokenLogprob | None:
    return None if sent is None else token_logprob(sent)
