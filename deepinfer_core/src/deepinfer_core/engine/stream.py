"""How do several calls share one engine, and how does each get its own tokens?

The router knows which open stream every running sequence belongs to. Whoever asks for the next
delta drives the engine, for all streams. Streams may belong to different threads: a lock lets one
of them at a time change anything, and whoever waited takes what came in the meantime.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import Self

from deepinfer_core.engine.core import Engine, Update
from deepinfer_core.engine.outputs import Delta
from deepinfer_core.engine.prompts import Prompt
from deepinfer_core.engine.results import refusal
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import DeepInferError, EngineError

__all__ = ["Call", "Router", "Stream"]


@dataclass(slots=True, eq=False)
class Call:
    """What a stream and the router share.

    It does not know the stream, so that nothing keeps a stream alive that its user let go of.

    Attributes:
        asked: requests that are not queued yet, with their indices.
        inbox: deltas that were not asked for yet.
        numbers: sequence of each running answer, by the indices of its prompt and its sample.
        dropped: why the engine forgot the requests, if it did.
        has_ended: there will be no further delta.
    """

    asked: deque[tuple[int, Prompt, SamplingParams]] = field(default_factory=deque)
    inbox: deque[Delta] = field(default_factory=deque)
    numbers: dict[tuple[int, int], int] = field(default_factory=dict)
    dropped: EngineError | None = None
    has_ended: bool = False


class Router:
    """All open streams of one engine.

    Args:
        engine: the step loop.
        encode: token ids of a text.
        finished: told about each sequence that ended.
    """

    def __init__(
        self,
        engine: Engine,
        encode: Callable[[str], list[int]],
        finished: Callable[[Update], None],
    ) -> None:
        self._engine: Engine | None = engine
        self.encode = encode
        self._finished = finished
        self._calls: dict[int, Call] = {}
        # Reentrant: a stream that is let go of while a step runs ends its requests from within.
        self._lock = RLock()

    @property
    def engine(self) -> Engine:
        """The step loop.

        Raises:
            EngineError: it was given back.
        """
        if self._engine is None:
            raise EngineError("this LLM was closed", hint="make a new one")
        return self._engine

    def submit(self, call: Call, index: int, prompt: Prompt, params: SamplingParams) -> None:
        """Queue each sample of one request of a stream; one that is refused ends at once."""
        for sample in range(params.n):
            self._submit(call, index, sample, prompt, params)

    def _submit(
        self, call: Call, index: int, sample: int, prompt: Prompt, params: SamplingParams
    ) -> None:
        ids: Sequence[int] = ()
        try:
            ids = self.encode(prompt) if isinstance(prompt, str) else prompt
            with self._lock:
                number = self.engine.submit(index, ids, params, sample=sample)
                self._calls[number] = call
                call.numbers[index, sample] = number
        except DeepInferError as error:
            load_s = self.engine.load_s
            completion = refusal(index, len(ids), error, load_s=load_s, sample=sample)
            call.inbox.append(Delta(index=index, completion=completion, sample=sample))

    def step(self, call: Call) -> None:
        """Run one step and hand out what it gave, unless another thread's step gave enough."""
        with self._lock:
            if call.inbox or not call.numbers:
                return
            for update in self.engine.step():
                self._hand_out(update)

    def abort(self, number: int) -> None:
        """End one sequence; its stream gets a last delta."""
        with self._lock:
            update = self.engine.abort(number)
            if update is not None:
                self._hand_out(update)

    def drop_all(self, reason: str) -> None:
        """Forget everything that runs; each open stream raises why."""
        with self._lock:
            for call in self._calls.values():
                call.dropped = EngineError(f"{reason} while this request ran", hint="ask again")
                call.numbers = {}
            self._calls = {}
            if self._engine is not None:
                self._engine.reset()

    def close(self, reason: str) -> None:
        """Forget everything that runs, and the engine, so that its memory comes free.

        A stream that is asked afterwards raises, whether it had begun or not.
        """
        with self._lock:
            self.drop_all(reason)
            self._engine = None

    def _hand_out(self, update: Update) -> None:
        call = self._calls[update.sequence_id]
        call.inbox.append(update.delta)
        if update.delta.completion is not None:
            del self._calls[update.sequence_id]
            call.numbers.pop((update.delta.index, update.delta.sample))
            self._finished(update)


class Stream(Iterator[Delta]):
    """Deltas of all requests of one call, in the order in which they happen.

    The last delta of each request has its completion. Leaving the stream, by ``close`` or by
    letting go of it, aborts what still runs. Requests are queued when the first delta is asked for.
    """

    def __init__(self, router: Router, asked: list[tuple[Prompt, SamplingParams]]) -> None:
        self._router = router
        self._call = Call()
        self._count = 0
        self._deltas = _deltas(router, self._call)
        for prompt, params in asked:
            self.add(prompt, params)

    def __next__(self) -> Delta:
        """The next delta.

        Raises:
            StopIteration: every request ended.
            EngineError: the engine was closed, or another stream was interrupted.
        """
        return next(self._deltas)

    def add(self, prompt: Prompt, params: SamplingParams) -> int:
        """Ask for one more thing; it is queued when the next delta is asked for.

        Args:
            prompt: a text, or token ids.
            params: how to draw.

        Returns:
            Its index: it counts on from the prompts of the call.

        Raises:
            EngineError: the stream has ended, by itself or by ``close``.
        """
        if self._call.has_ended:
            raise EngineError("this stream has ended", hint="open another one")
        index, self._count = self._count, self._count + 1
        self._call.asked.append((index, prompt, params))
        return index

    def abort(self, index: int, sample: int | None = None) -> None:
        """End one request; its last delta says ``abort``.

        Nothing happens if it already ended, or is not queued yet.

        Args:
            index: place of the prompt among the prompts of the call.
            sample: which of its answers; None: all of them.
        """
        for (prompt, place), number in tuple(self._call.numbers.items()):
            if prompt == index and sample in (None, place):
                self._router.abort(number)

    def close(self) -> None:
        """End all requests; there are no further deltas."""
        self._call.has_ended = True
        self._deltas.close()

    def __enter__(self) -> Self:
        """The stream itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close."""
        self.close()


def _deltas(router: Router, call: Call) -> Generator[Delta, None, None]:
    try:
        while call.asked or call.numbers or call.inbox or call.dropped:
            while call.asked:
                router.submit(call, *call.asked.popleft())
            while call.inbox:
                yield call.inbox.popleft()
            if call.dropped is not None:
                raise call.dropped
            if call.numbers:
                router.step(call)
    except KeyboardInterrupt:
        # The interrupt may have come anywhere: start from a clean state.
        router.drop_all("another call was interrupted")
        raise
    finally:
        call.has_ended = True
        for number in tuple(call.numbers.values()):
            router.abort(number)
