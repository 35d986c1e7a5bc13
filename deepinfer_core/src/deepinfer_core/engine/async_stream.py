"""How does a coroutine get the tokens of its request as they come?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Self

from deepinfer_core.engine.inbox import Inbox
from deepinfer_core.engine.outputs import Completion, Delta

__all__ = ["AsyncStream"]


class AsyncStream(AsyncIterator[Delta]):
    """Deltas of one request; the last one of each of its answers has the completion.

    A consumer that is slower than the engine gets fewer, longer deltas; it holds up nobody, and
    nothing is lost. Leaving ``async with``, ``aclose``, letting go of the stream, and a
    cancellation of whoever waits for it end the request and free what it holds. The stream may be
    used from any event loop, and from several tasks, which then get different deltas.

    ``AsyncLLM.submit`` makes it.

    Args:
        inbox: what comes.
        abort: ends one answer, or all; never waits.
        check: raises where the engine's thread cannot be.
        owner: what has to live as long as the stream.
    """

    def __init__(
        self,
        inbox: Inbox,
        abort: Callable[[int | None], None],
        check: Callable[[], None],
        owner: object,
    ) -> None:
        self._inbox = inbox
        self._abort = abort
        self._check = check
        self._owner = owner
        self._is_closed = False

    async def __anext__(self) -> Delta:
        """The next delta.

        Raises:
            StopAsyncIteration: every answer ended, or the stream was closed.
            EngineError: the engine failed; what it gave before comes first.
        """
        while not self._is_closed:
            if (delta := self._inbox.take()) is not None:
                return delta
            if self._inbox.has_ended:
                # The last delta may have come in between.
                if (delta := self._inbox.take()) is not None:
                    return delta
                break
            await self._changed(until_end=False)
        raise StopAsyncIteration

    async def result(self) -> list[Completion]:
        """Wait for the end; deltas that were not taken can be taken afterwards.

        Returns:
            One completion, or ``n`` in the order of the samples. One that failed, was refused or
            aborted says so.

        Raises:
            EngineError: the engine failed.
        """
        while not self._inbox.has_ended:
            await self._changed(until_end=True)
        return self._inbox.completions()

    def abort(self, sample: int | None = None) -> None:
        """End the request, or one of its answers; its last delta says ``abort``.

        Does not wait, may be called from any thread, and does nothing if it already ended.

        Args:
            sample: which of the answers; None: all of them.
        """
        if not self._inbox.has_ended:
            self._abort(sample)

    async def aclose(self) -> None:
        """End the request; there are no further deltas. Returns when it holds nothing any more."""
        self._is_closed = True
        self.abort()
        while not self._inbox.has_ended:
            await self._changed(until_end=True)

    async def __aenter__(self) -> Self:
        """The stream itself."""
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close."""
        await self.aclose()

    def __del__(self) -> None:
        """End the request; may happen in any thread, within anything."""
        if (inbox := getattr(self, "_inbox", None)) is not None and not inbox.has_ended:
            self._abort(None)

    async def _changed(self, *, until_end: bool) -> None:
        self._check()
        try:
            await self._inbox.changed(until_end=until_end)
        except BaseException:  # cancelled, or its loop was closed
            self.abort()
            raise
