"""Several threads, and signal handlers, at the streams of one engine."""

import gc
import random
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from threading import Barrier, Event, Thread
from types import FrameType
from typing import Any

import pytest
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.outputs import Completion
from deepinfer_core.engine.router import Router
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.engine.stream import Stream
from deepinfer_core.errors import EngineError
from deepinfer_core.schedule.plan import StepPlan
from deepinfer_core.testing.fake_runner import FakeRunner

MakeEngine = Callable[..., Engine]
Handler = Callable[[], None]

WAIT_S = 10
PARAMS = SamplingParams(max_tokens=3, seed=1)
LONG = SamplingParams(max_tokens=50, seed=1)


def router_over(engine: Engine) -> Router:
    return Router(engine, lambda text: [0], lambda update: None)


def drain(stream: Stream) -> dict[int, Completion]:
    return {delta.index: delta.completion for delta in stream if delta.completion is not None}


class HeldStep:
    """A step that begins and does not end before it is let on."""

    def __init__(self) -> None:
        self.begun, self.let_on = Event(), Event()

    def __call__(self, plan: StepPlan) -> None:
        self.begun.set()
        assert self.let_on.wait(WAIT_S)


@pytest.fixture
def held(make_engine: MakeEngine) -> tuple[Engine, HeldStep]:
    step = HeldStep()
    return make_engine(runner=FakeRunner(265, 4, step)), step


class Reader:
    """A thread that drains a stream."""

    def __init__(self, stream: Stream) -> None:
        self.found: dict[int, Completion] = {}
        self.error: BaseException | None = None
        self.thread = Thread(target=self._read, args=(stream,))
        self.thread.start()

    def _read(self, stream: Stream) -> None:
        try:
            self.found = drain(stream)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.error = error

    def end(self) -> None:
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive()


def in_a_step(held: HeldStep, action: Callable[[], None]) -> None:
    """Begin an action in another thread while a step runs, then let the step end."""
    assert held.begun.wait(WAIT_S)
    thread = Thread(target=action)
    thread.start()
    held.let_on.set()
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_closing_a_stream_that_another_thread_reads_ends_it(held: tuple[Engine, HeldStep]) -> None:
    engine, step = held
    stream = Stream(router_over(engine), [([10], LONG)])
    reader = Reader(stream)
    in_a_step(step, stream.close)
    reader.end()
    assert (reader.error, reader.found) == (None, {})
    assert len(engine.batch) == 0
    engine.check_integrity()


def test_aborting_a_request_that_another_thread_waits_for_ends_it(
    held: tuple[Engine, HeldStep],
) -> None:
    engine, step = held
    stream = Stream(router_over(engine), [([10], LONG), ([20], PARAMS)])
    reader = Reader(stream)
    in_a_step(step, lambda: stream.abort(0))
    reader.end()
    assert reader.error is None
    assert [reader.found[i].finish_reason for i in range(2)] == ["abort", "length"]


def test_closing_the_router_is_told_to_the_thread_that_reads(
    held: tuple[Engine, HeldStep],
) -> None:
    engine, step = held
    router = router_over(engine)
    reader = Reader(Stream(router, [([10], LONG)]))
    in_a_step(step, lambda: router.close("the LLM was closed"))
    reader.end()
    assert isinstance(reader.error, EngineError)
    assert "closed" in str(reader.error)


def test_letting_go_of_a_stream_does_not_wait_for_another_thread_s_step(
    held: tuple[Engine, HeldStep],
) -> None:
    engine, step = held
    router = router_over(engine)
    left = Stream(router, [([10], LONG)])
    left._queue_asked()
    reader = Reader(Stream(router, [([20], PARAMS)]))
    assert step.begun.wait(WAIT_S)
    del left
    gc.collect()  # here, where the step still runs
    assert not step.let_on.is_set()
    step.let_on.set()
    reader.end()
    assert reader.found[0].finish_reason == "length"
    assert len(engine.batch) == 0
    engine.check_integrity()


def test_threads_that_read_one_stream_get_each_delta_once(make_engine: MakeEngine) -> None:
    [wanted] = drain(Stream(router_over(make_engine()), [([10], LONG)])).values()
    stream = Stream(router_over(make_engine()), [([10], LONG)])
    with ThreadPoolExecutor(3) as pool:
        parts = list(pool.map(lambda _: list(stream), range(3)))
    deltas = [delta for part in parts for delta in part]
    assert sorted(t for delta in deltas for t in delta.token_ids) == sorted(wanted.token_ids)
    assert [delta.completion for delta in deltas if delta.completion] != []


def test_a_stream_does_not_end_while_another_thread_queues_its_last_request(
    make_engine: MakeEngine,
) -> None:
    begun, let_on = Event(), Event()

    def encode(text: str) -> list[int]:
        begun.set()
        assert let_on.wait(WAIT_S)
        return [10]

    stream = Stream(Router(make_engine(), encode, lambda update: None), [("text", PARAMS)])
    reader = Reader(stream)
    assert begun.wait(WAIT_S)
    assert not stream._comes_to_its_end()
    let_on.set()
    reader.end()
    assert reader.found[0].finish_reason == "length"


def test_no_thread_waits_while_others_take_step_after_step(make_engine: MakeEngine) -> None:
    """Every thread gets a token from each step or two, though any of them could run them all."""
    crowd, each = 4, 60
    steps = [0]

    def count(plan: StepPlan) -> None:
        steps[0] += 1
        Event().wait(0.0005)  # the interpreter is free meanwhile, as it is in a model's step

    engine = make_engine(runner=FakeRunner(265, 4, count), longest=128, blocks=256, sequences=crowd)
    router, start = router_over(engine), Barrier(crowd)
    params = SamplingParams(max_tokens=each, seed=1)

    def read(name: int) -> int:
        start.wait(WAIT_S)
        longest, before = 0, steps[0]
        for _ in Stream(router, [([10 + name], params)]):
            longest, before = max(longest, steps[0] - before), steps[0]
        return longest

    with ThreadPoolExecutor(crowd) as pool:
        longest = max(pool.map(read, range(crowd)))
    # A plain lock lets a thread miss nearly all of the 60 steps; half of them leaves room for a
    # host that is busy with something else.
    assert longest <= each // 2


def prompts_of(chance: random.Random) -> list[list[int]]:
    return [[10 + chance.randrange(200)] for _ in range(chance.randint(1, 3))]


def meddle(chance: random.Random, stream: Stream, count: int) -> None:
    """What another thread may do to a stream at any time."""
    for _ in range(chance.randint(0, 4)):
        what = chance.choice(["abort", "add", "close", "sample", "nothing"])
        if what == "abort":
            stream.abort(chance.randrange(count))
        elif what == "sample":
            stream.abort(chance.randrange(count), chance.randrange(2))
        elif what == "add":
            with suppress(EngineError):  # the stream may have ended
                stream.add([10], PARAMS)
        elif what == "close":
            stream.close()


def live(router: Router, seed: str, rounds: int) -> list[tuple[list[int], SamplingParams, Any]]:
    """Streams one after the other, each read here and disturbed by another thread."""
    chance, results = random.Random(seed), []
    for turn in range(rounds):
        prompts = prompts_of(chance)
        params = SamplingParams(n=chance.randint(1, 2), max_tokens=chance.randint(1, 12), seed=turn)
        stream = Stream(router, [(prompt, params) for prompt in prompts])
        disturber = random.Random(f"{seed}{turn}")
        other = Thread(target=meddle, args=(disturber, stream, len(prompts)))
        other.start()
        for delta in stream:
            done = delta.completion
            if done is not None and done.index < len(prompts):
                results.append((prompts[done.index], params, done))
            if chance.random() < 0.02:
                break
        del stream
        other.join(WAIT_S)
        assert not other.is_alive()
    return results


def test_threads_that_do_everything_at_once_get_right_tokens_and_leave_nothing_behind(
    make_engine: MakeEngine, request: pytest.FixtureRequest
) -> None:
    engine = make_engine(rows=8, sequences=3, blocks=24)
    router = router_over(engine)
    with ThreadPoolExecutor(4) as pool:
        names = [f"{request.node.name}{thread}" for thread in range(4)]
        lives = list(pool.map(lambda name: live(router, name, 25), names))
    assert len(engine.batch) == 0
    assert not router.has_work
    engine.check_integrity()
    results = [one for life in lives for one in life]
    assert {"length", "abort"} <= {done.finish_reason for _, _, done in results}
    reference = make_engine()
    for prompt, params, done in results:
        assert done.error is None
        number = reference.submit(0, prompt, params, sample=done.sample)
        tokens: tuple[int, ...] = ()
        while reference.batch.get(number) is not None:
            for update in reference.step():
                tokens += update.delta.token_ids
        assert done.token_ids == tokens[: len(done.token_ids)]
        assert done.finish_reason == "abort" or len(done.token_ids) == len(tokens)


# --- signal handlers ----------------------------------------------------------------------------


@pytest.fixture
def signalled(
    make_engine: MakeEngine,
) -> Iterator[Callable[[Handler], Engine]]:
    """An engine whose second step is hit by a signal with this handler."""
    before = signal.getsignal(signal.SIGUSR1)
    steps = []

    def hit(plan: StepPlan) -> None:
        steps.append(plan)
        if len(steps) == 2:
            signal.raise_signal(signal.SIGUSR1)

    def build(handler: Handler) -> Engine:
        signal.signal(signal.SIGUSR1, lambda number, frame: handler())
        return make_engine(runner=FakeRunner(265, 4, hit), asynchronous=False)

    yield build
    signal.signal(signal.SIGUSR1, before)


def test_a_handler_may_abort_within_a_step_of_its_own_thread(
    signalled: Callable[[Handler], Engine],
) -> None:
    engine = signalled(lambda: stream.abort(0))
    stream = Stream(router_over(engine), [([10], LONG), ([20], PARAMS)])
    found = drain(stream)
    assert [found[i].finish_reason for i in range(2)] == ["abort", "length"]
    assert len(found[0].token_ids) == 2  # the step that it came in was finished first
    engine.check_integrity()


def test_a_handler_may_close_the_stream_within_a_step_of_its_own_thread(
    signalled: Callable[[Handler], Engine],
) -> None:
    def close() -> None:
        stream.close()

    engine = signalled(close)
    stream = Stream(router_over(engine), [([10], LONG)])
    assert drain(stream) == {}
    assert len(engine.batch) == 0
    engine.check_integrity()


def test_a_handler_may_close_the_router_within_a_step_of_its_own_thread(
    signalled: Callable[[Handler], Engine],
) -> None:
    router = router_over(signalled(lambda: router.close("the LLM was closed")))
    with pytest.raises(EngineError, match="closed while this request ran"):
        drain(Stream(router, [([10], LONG)]))


def test_a_handler_that_comes_while_its_thread_takes_its_turn_is_put_off(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    router = router_over(engine)
    stream = Stream(router, [([10], LONG), ([20], PARAMS)])
    next(stream)
    router._turns._mine.state = "moving"
    stream.abort(0)
    with pytest.raises(EngineError, match="from within a step"):
        next(Stream(router, [([30], PARAMS)]))
    router._turns._mine.state = None
    found = drain(stream)
    assert [found[i].finish_reason for i in range(2)] == ["abort", "length"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_what_a_handler_raises_comes_out_of_the_call_unless_it_is_an_exception(
    signalled: Callable[[Handler], Engine], error: BaseException
) -> None:
    def handler() -> None:
        raise error

    engine = signalled(handler)
    router = router_over(engine)
    other = Stream(router, [([20], LONG)])
    next(other)
    with pytest.raises(type(error)):
        drain(Stream(router, [([10], LONG)]))
    assert len(engine.batch) == 0
    engine.check_integrity()
    with pytest.raises(EngineError, match="another call was interrupted"):
        drain(other)
    assert drain(Stream(router, [([10], PARAMS)]))[0].error is None


def interrupted_at(call: int, work: Callable[[], Any]) -> KeyboardInterrupt | None:
    """Do something, interrupted where the so many-th function begins, as a signal handler may.

    No garbage is collected meanwhile: an interrupt inside ``__del__`` of what an earlier test left
    behind reaches nobody, and would be counted as one of this work.
    """
    left = call

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise KeyboardInterrupt

    before = sys.gettrace()
    gc.disable()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt as error:
        return error
    finally:
        sys.settrace(before)
        gc.enable()
    return None


@pytest.mark.breaks_integrity
def test_an_interrupt_at_the_beginning_of_any_function_leaves_all_threads_able_to_go_on(
    make_engine: MakeEngine,
) -> None:
    engine = make_engine()
    router = router_over(engine)
    short = SamplingParams(max_tokens=1, seed=1)

    def ask(found: list[Completion]) -> None:
        found += drain(Stream(router, [([10], short)])).values()

    for call in count(1):
        stream = Stream(router, [([10], short)])
        interrupt = interrupted_at(call, lambda stream=stream: drain(stream))  # type: ignore[misc]
        stream.close()
        found: list[Completion] = []
        other = Thread(target=ask, args=(found,), daemon=True)
        other.start()
        other.join(WAIT_S)
        assert not other.is_alive(), f"interrupted at call {call}, nobody else gets a turn"
        ask(found)
        assert [done.error for done in found] == [None, None], f"interrupted at call {call}"
        assert len(engine.batch) == 0
        engine.check_integrity()
        if interrupt is None:  # who holds an interrupt holds all frames that it came through
            break
    assert call > 50


def test_an_exception_of_a_handler_is_a_failure_of_the_step_it_came_in(
    signalled: Callable[[Handler], Engine],
) -> None:
    def handler() -> None:
        raise TimeoutError("too slow")

    [done] = drain(Stream(router_over(signalled(handler)), [([10], LONG)])).values()
    assert done.finish_reason == "error"
    assert isinstance(done.error.__cause__, TimeoutError)


def test_a_handler_that_asks_for_tokens_within_a_step_is_refused(
    signalled: Callable[[Handler], Engine],
) -> None:
    refused = []

    def handler() -> None:
        try:
            drain(Stream(router, [([30], PARAMS)]))
        except EngineError as error:
            refused.append(str(error))

    router = router_over(signalled(handler))
    assert drain(Stream(router, [([10], PARAMS)]))[0].finish_reason == "length"
    assert "from within a step" in refused[0]
