"""How does a program get the tokens of its requests as they come?

Whoever asks a stream for the next delta drives the engine, for all streams: whoever waited takes
what came in the meantime.

Signal handlers run in the main thread, also in the middle of a step. One that raises ends the call
if what it raises is no ``Exception``, as ``KeyboardInterrupt`` and ``SystemExit`` are not: then
everything that ran is dropped, and the engine works. An ``Exception`` that comes out of a
component, on the other hand, is the component's failure, whoever raised it: the requests of that
step end with an error whose cause it is, and the call goes on. Nothing tells the two apart, so a
handler that is to end a call raises one of the former.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from threading import RLock
from typing import Self

from deepinfer_core.engine.outputs import Delta
from deepinfer_core.engine.prompts import Prompt
from deepinfer_core.engine.request_options import DEFAULT_OPTIONS, RequestOptions
from deepinfer_core.engine.router import Call, Router
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import EngineError

__all__ = ["Stream"]


class Stream(Iterator[Delta]):
    """Deltas of all requests of one call, in the order in which they happen.

    The last delta of each request has its completion. Leaving the stream, by ``close`` or by
    letting go of it, aborts what still runs. Requests are queued when the first delta is asked for.

    Any thread may add, abort and close while another one iterates. Threads that iterate together
    get different deltas.
    """

    def __init__(
        self,
        router: Router,
        asked: Iterable[
            tuple[Prompt, SamplingParams] | tuple[Prompt, SamplingParams, RequestOptions]
        ] = (),
    ) -> None:
        self._router = router
        self._inbox: deque[Delta] = deque()
        self._dropped: deque[EngineError] = deque()
        self._call = Call(receive=self._inbox.append, drop=self._dropped.append)
        self._asked: deque[tuple[int, Prompt, SamplingParams, RequestOptions]] = deque()
        self._count = 0
        # Adding and coming to the end exclude each other; a signal handler may do either.
        self._guard = RLock()
        for request in asked:
            self.add(*request)

    def __next__(self) -> Delta:
        """The next delta.

        Raises:
            StopIteration: every request ended, or the stream was closed, by another thread perhaps.
            EngineError: the engine was closed, a step failed as a whole, or another stream was
                interrupted.
        """
        try:
            delta = self._next()
        except Exception:
            self.close()
            raise
        except BaseException:
            # The interrupt may have come anywhere: start from a clean state.
            self._call.has_ended = True
            self._router.recover()
            raise
        if delta is None:
            raise StopIteration
        return delta

    def add(
        self, prompt: Prompt, params: SamplingParams, options: RequestOptions = DEFAULT_OPTIONS
    ) -> int:
        """Ask for one more thing; it is queued when the next delta is asked for.

        Args:
            prompt: a text, or token ids.
            params: how to draw.
            options: how it is treated.

        Returns:
            Its index: it counts on from the prompts of the call.

        Raises:
            EngineError: the stream has ended, by itself or by ``close``.
        """
        with self._guard:
            if self._call.has_ended:
                raise EngineError("this stream has ended", hint="open another one")
            index, self._count = self._count, self._count + 1
            self._call.unqueued[index] = set()
            self._asked.append((index, prompt, params, options))
        return index

    def abort(self, index: int, sample: int | None = None) -> None:
        """End one request; its last delta says ``abort``.

        One that is not queued yet is ended when it would be. Nothing happens if it already ended.

        Args:
            index: place of the prompt among the prompts of the call.
            sample: which of its answers; None: all of them.
        """
        self._router.abort(self._call, index, sample)

    def close(self) -> None:
        """End all requests; there are no further deltas. May be called again."""
        self._router.end(self._call)

    def __enter__(self) -> Self:
        """The stream itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close."""
        self.close()

    def __del__(self) -> None:
        """End all requests; the thread that lets go does not wait for another one's step."""
        if (call := getattr(self, "_call", None)) is not None:
            self._router.let_go(call)

    def _next(self) -> Delta | None:
        while not self._call.has_ended:
            self._queue_asked()
            if (delta := self._taken()) is not None:
                return delta
            if self._dropped:
                raise self._dropped[0]
            if not self._comes_to_its_end():
                self._router.step(self._is_served)
        return None

    def _queue_asked(self) -> None:
        while self._asked:
            try:
                request = self._asked.popleft()
            except IndexError:  # another thread was faster
                return
            self._router.submit(self._call, *request)

    def _taken(self) -> Delta | None:
        try:
            return self._inbox.popleft()
        except IndexError:
            return None

    def _is_served(self) -> bool:
        return bool(self._inbox or self._call.has_ended) or not self._call.numbers

    def _comes_to_its_end(self) -> bool:
        with self._guard:
            call = self._call
            if not (call.unqueued or call.numbers or self._inbox or self._dropped):
                call.has_ended = True
            return call.has_ended
