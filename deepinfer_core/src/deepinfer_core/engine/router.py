"""How do several calls share one engine, and how does each get its own tokens?

The router knows which call every running sequence belongs to, and hands each delta to it. Calls may
belong to different threads: they take turns at the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from deepinfer_core.engine.core import Engine, Update
from deepinfer_core.engine.outputs import Delta
from deepinfer_core.engine.prompts import Prompt
from deepinfer_core.engine.request_options import DEFAULT_OPTIONS, RequestOptions
from deepinfer_core.engine.results import refusal
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.turns import Turns
from deepinfer_core.errors import DeepInferError, EngineError

__all__ = ["Call", "Router"]


@dataclass(slots=True, eq=False, kw_only=True)
class Call:
    """What a front door and the router share.

    It knows nothing that its user holds, so that nothing keeps a stream alive that was let go of.

    Attributes:
        receive: takes each delta.
        drop: told why the engine forgot the requests, if it did.
        unqueued: prompts that were asked for and are not queued yet, by their indices, each with
            the samples to abort as soon as they are; None stands for all of them.
        numbers: sequence of each running answer, by the indices of its prompt and its sample.
        has_ended: there will be no further delta.
    """

    receive: Callable[[Delta], None]
    drop: Callable[[EngineError], None]
    unqueued: dict[int, set[int | None]] = field(default_factory=dict)
    numbers: dict[tuple[int, int], int] = field(default_factory=dict)
    has_ended: bool = False


class Router:
    """All calls of one engine.

    A call from within a step, which only a signal handler can make, is put off until the step is
    done if it ends something, and refused otherwise.

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
        self._turns = Turns()
        self._is_stepping = False

    @property
    def engine(self) -> Engine:
        """The step loop.

        Raises:
            EngineError: it was given back.
        """
        if self._engine is None:
            raise EngineError("this LLM was closed", hint="make a new one")
        return self._engine

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return self._engine is not None and bool(self._calls or self._engine.has_work)

    def submit(
        self,
        call: Call,
        index: int,
        prompt: Prompt,
        params: SamplingParams,
        options: RequestOptions = DEFAULT_OPTIONS,
    ) -> None:
        """Queue each sample of one request; one that is refused ends at once.

        Raises:
            EngineError: the engine was given back, or this thread is within a step.
        """
        ids: Sequence[int] = ()
        error: DeepInferError | None = None
        try:
            ids = self.encode(prompt) if isinstance(prompt, str) else prompt
        except DeepInferError as found:
            error = found
        self._refuse_within_step()
        with self._turns.take():
            if call.has_ended:
                return
            first: int | None = None
            for sample in range(params.n):
                if error is None:
                    error = self._submit(call, index, sample, ids, params, options, first)
                if error is not None:
                    self._refuse(call, index, sample, len(ids), error)
                first = call.numbers.get((index, 0))
            for sample_to_abort in call.unqueued.pop(index, ()):
                self.abort(call, index, sample_to_abort)

    def _submit(
        self,
        call: Call,
        index: int,
        sample: int,
        ids: Sequence[int],
        params: SamplingParams,
        options: RequestOptions,
        first: int | None,
    ) -> DeepInferError | None:
        """Queue one sample; the error if the engine does not take it, nor any other one then."""
        try:
            number = self.engine.submit(
                index, ids, params, sample=sample, options=options, follows=first
            )
        except DeepInferError as error:
            return error
        self._calls[number] = call
        call.numbers[index, sample] = number
        return None

    def _refuse(
        self, call: Call, index: int, sample: int, prompt_tokens: int, error: DeepInferError
    ) -> None:
        load_s = self.engine.load_s
        completion = refusal(index, prompt_tokens, error, load_s=load_s, sample=sample)
        call.receive(Delta(index=index, completion=completion, sample=sample))

    def step(self, is_served: Callable[[], bool] = lambda: False) -> None:
        """Run one step and hand out what it gave.

        Args:
            is_served: asked when it is this thread's turn; then nothing is done if another
                thread's step gave enough.

        Raises:
            EngineError: this thread is within a step.
            BaseException: whatever the step raised. Everything that ran was dropped, and the
                engine is empty and usable.
        """
        self._refuse_within_step()
        with self._turns.take():
            if is_served():
                return
            updates = self._step()
            for update in updates:
                self._hand_out(update)
            for update in updates:
                self._tell_finished(update)

    def _step(self) -> list[Update]:
        self._is_stepping = True
        try:
            return self.engine.step()
        except BaseException as error:
            self._drop_all(_reason(error), error)
            raise
        finally:
            self._is_stepping = False

    def abort(self, call: Call, index: int, sample: int | None = None) -> None:
        """End one request, or one sample of it; each gets a last delta that says so.

        One that is not queued yet is ended as soon as it is. Nothing happens if it already ended.
        """
        if self._is_put_off(partial(self.abort, call, index, sample)):
            return
        with self._turns.take():
            if index in call.unqueued:
                call.unqueued[index].add(sample)
            for (prompt, place), number in tuple(call.numbers.items()):
                if prompt == index and sample in (None, place):
                    self._end(number)

    def end(self, call: Call, reason: EngineError | None = None) -> None:
        """End all requests of one call, those that are not queued yet included.

        Args:
            call: takes no further request.
            reason: stands in the completions, if its caller did not wish it.
        """
        call.has_ended = True
        if self._is_put_off(partial(self.end, call, reason)):
            return
        with self._turns.take():
            for number in tuple(call.numbers.values()):
                self._end(number, reason)

    def let_go(self, call: Call) -> None:
        """The same without waiting for a turn, for a call that nobody holds any more."""
        call.has_ended = True
        if call.numbers:
            self._turns.soon(partial(self.end, call))

    def end_all(self, reason: EngineError) -> None:
        """End all requests of all calls; each completion holds the reason."""
        self._refuse_within_step()
        with self._turns.take():
            for number in tuple(self._calls):
                self._end(number, reason)

    def recover(self) -> None:
        """Forget everything that runs, after an interrupt of this thread; open calls are told."""
        if not (self._turns.is_mine and self._is_stepping):
            self._turns.give_up()  # the interrupt may have come anywhere on the way out of one
        if self._is_put_off(self.recover):
            return
        with self._turns.take():
            self._drop_all("another call was interrupted")

    def close(self, reason: str) -> None:
        """Forget everything that runs, and the engine, so that its memory comes free.

        A stream that is asked afterwards raises, whether it had begun or not.
        """
        if self._is_put_off(partial(self.close, reason)):
            return
        with self._turns.take():
            self._drop_all(reason)
            engine, self._engine = self._engine, None
            if engine is not None:
                engine.close()

    @property
    def _is_within_step(self) -> bool:
        """Whether a signal handler or an observer of this thread asks, in the middle of a step."""
        return self._turns.is_moving or (self._turns.is_mine and self._is_stepping)

    def _is_put_off(self, action: Callable[[], None]) -> bool:
        if self._is_within_step:
            self._turns.soon(action)
            return True
        return False

    def _refuse_within_step(self) -> None:
        if self._is_within_step:
            raise EngineError(
                "a request was made from within a step",
                hint="a signal handler may end requests, and raise, but not wait for tokens",
            )

    def _end(self, number: int, reason: EngineError | None = None) -> None:
        update = self.engine.abort(number)
        if update is None:
            return
        if reason is not None and update.delta.completion is not None:
            completion = replace(update.delta.completion, error=reason)
            update = update._replace(delta=replace(update.delta, completion=completion))
        self._hand_out(update)
        self._tell_finished(update)

    def _drop_all(self, reason: str, cause: BaseException | None = None) -> None:
        calls, self._calls = dict.fromkeys(self._calls.values()), {}
        for call in calls:
            error = EngineError(f"{reason} while this request ran", hint="ask again")
            error.__cause__ = cause
            call.numbers.clear()
            call.drop(error)
        if self._engine is not None:
            self._engine.reset()

    def _hand_out(self, update: Update) -> None:
        call = self._calls[update.sequence_id]
        if update.delta.completion is not None:
            del self._calls[update.sequence_id]
            call.numbers.pop((update.delta.index, update.delta.sample))
        call.receive(update.delta)

    def _tell_finished(self, update: Update) -> None:
        if update.delta.completion is not None:
            self._finished(update)


def _reason(error: BaseException) -> str:
    if not isinstance(error, Exception):
        return "another call was interrupted"
    text = " ".join(str(error).split())
    return f"a step failed ({type(error).__name__}: {text})"
