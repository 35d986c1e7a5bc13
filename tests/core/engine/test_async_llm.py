"""An engine in a thread of its own, and coroutines that use it."""

import asyncio
import contextlib
import gc
import os
import random
from collections.abc import Callable
from threading import Event, Semaphore, Thread
from typing import Any

import pytest
from deepinfer_core.engine.async_llm import AsyncLLM
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.outputs import Completion, Delta
from deepinfer_core.engine.request_options import DEFAULT_OPTIONS, RequestOptions
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import EngineBusy, EngineError, RequestError
from deepinfer_core.schedule.plan import StepPlan
from deepinfer_core.testing.fake_runner import FakeRunner

MakeEngine = Callable[..., Engine]
OpenAsync = Callable[..., AsyncLLM]
RunAsync = Callable[[Callable[[], Any]], Any]

PARAMS = SamplingParams(max_tokens=5, seed=1)
LONG = SamplingParams(max_tokens=50, seed=1)
WAIT_S = 10


class Gate:
    """Lets as many steps run as the test says; open, it lets all run."""

    def __init__(self) -> None:
        self._steps = Semaphore(0)
        self._is_open = False
        self.reached = Event()

    def __call__(self, plan: StepPlan) -> None:
        self.reached.set()
        if not self._is_open:
            assert self._steps.acquire(timeout=WAIT_S)

    def pass_through(self, steps: int) -> None:
        for _ in range(steps):
            self._steps.release()

    def open(self) -> None:
        self._is_open = True
        self._steps.release()


@pytest.fixture
def gated(make_engine: MakeEngine) -> tuple[Engine, Gate]:
    gate = Gate()
    # Synchronous, so that a step gives its results before the next one comes to the gate.
    return make_engine(runner=FakeRunner(265, 4, gate), asynchronous=False), gate


def alone(make_engine: MakeEngine, prompt: list[int], params: SamplingParams) -> tuple[int, ...]:
    """What an engine gives that runs nothing else."""
    engine = make_engine()
    engine.submit(0, prompt, params)
    tokens: tuple[int, ...] = ()
    while len(engine.batch):
        for update in engine.step():
            tokens += update.delta.token_ids
    return tokens


def joined(deltas: list[Delta]) -> tuple[int, ...]:
    return tuple(token for delta in deltas for token in delta.token_ids)


async def idle(llm: AsyncLLM, engine: Engine) -> None:
    """Wait until the engine holds nothing, and compare its books."""
    while llm.in_work or len(engine.batch):  # noqa: ASYNC110 - nothing tells when it is so
        await asyncio.sleep(0.001)
    engine.check_integrity()


def test_a_stream_gives_the_tokens_and_then_the_completion(
    make_engine: MakeEngine, open_async: OpenAsync, run_async: RunAsync
) -> None:
    async def main() -> None:
        stream = await open_async().submit([10, 11], PARAMS)
        deltas = [delta async for delta in stream]
        assert joined(deltas) == alone(make_engine, [10, 11], PARAMS)
        assert [delta.completion is not None for delta in deltas[:-1]] == [False] * (
            len(deltas) - 1
        )
        [done] = await stream.result()
        assert deltas[-1].completion == done
        assert done.token_ids == joined(deltas)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    run_async(main)


def test_a_result_can_be_had_without_taking_a_delta_and_deltas_behind_it(
    open_async: OpenAsync, run_async: RunAsync
) -> None:
    async def main() -> None:
        stream = await open_async().submit("ab", PARAMS)
        [done] = await stream.result()
        [delta] = [delta async for delta in stream]
        assert (delta.token_ids, delta.completion) == (done.token_ids, done)

    run_async(main)


def test_several_answers_come_in_one_stream(open_async: OpenAsync, run_async: RunAsync) -> None:
    async def main() -> None:
        params = SamplingParams(n=3, max_tokens=5, seed=1)
        stream = await open_async().submit([10], params)
        texts: dict[int, tuple[int, ...]] = {0: (), 1: (), 2: ()}
        async for delta in stream:
            texts[delta.sample] += delta.token_ids
        done = await stream.result()
        assert [one.sample for one in done] == [0, 1, 2]
        assert [one.token_ids for one in done] == [texts[0], texts[1], texts[2]]
        assert len({one.token_ids for one in done}) == 3

    run_async(main)


def test_generate_gives_completions_in_the_order_of_prompts_and_samples(
    make_engine: MakeEngine, open_async: OpenAsync, run_async: RunAsync
) -> None:
    async def main() -> None:
        params = [SamplingParams(max_tokens=9, seed=1), SamplingParams(n=2, max_tokens=2, seed=2)]
        done = await open_async().generate([[10], [20]], params)
        assert [(one.index, one.sample) for one in done] == [(0, 0), (1, 0), (1, 1)]
        assert done[0].token_ids == alone(make_engine, [10], params[0])

    run_async(main)


def test_generate_takes_more_prompts_than_may_be_in_work(
    open_async: OpenAsync, run_async: RunAsync
) -> None:
    async def main() -> None:
        done = await open_async(places=2).generate([[10 + i] for i in range(7)], PARAMS)
        assert [one.index for one in done] == list(range(7))

    run_async(main)


def test_a_refused_request_has_its_error_and_no_other_one_has(
    open_async: OpenAsync, run_async: RunAsync
) -> None:
    async def main() -> None:
        refused, fine = await open_async().generate([[], [10]], PARAMS)
        assert isinstance(refused.error, RequestError)
        assert fine.error is None

    run_async(main)


def test_arguments_that_do_not_fit_together_run_nothing(
    make_engine: MakeEngine, open_async: OpenAsync, run_async: RunAsync
) -> None:
    engine = make_engine()
    llm = open_async(engine, places=2)

    async def main() -> None:
        with pytest.raises(RequestError, match=r"1 options .* 2 prompts"):
            await llm.generate([[10], [20]], options=[DEFAULT_OPTIONS])
        with pytest.raises(RequestError, match="n is 3, and at most 2"):
            await llm.generate([[10], [20]], [PARAMS, SamplingParams(n=3)])
        with pytest.raises(RequestError, match="sampling_params is of type dict"):
            await llm.submit([10], {"n": 1})  # type: ignore[arg-type]
        with pytest.raises(RequestError, match="prompts"):
            await llm.submit(b"bytes", PARAMS)  # type: ignore[arg-type]
        assert (llm.in_work, engine.runner.plans) == (0, [])

    run_async(main)


def test_options_reach_the_engine(
    make_engine: MakeEngine, open_async: OpenAsync, run_async: RunAsync
) -> None:
    engine, seen = make_engine(), []
    submit = engine.submit

    def noting(*arguments: Any, **options: Any) -> int:
        seen.append(options["options"])
        return submit(*arguments, **options)

    engine.submit = noting  # type: ignore[method-assign]
    urgent = RequestOptions(priority=2)

    async def main() -> None:
        llm = open_async(engine)
        await (await llm.submit([10], PARAMS, options=urgent)).result()
        await llm.generate([[10], [20]], PARAMS, options=[DEFAULT_OPTIONS, urgent])
        assert seen == [urgent, DEFAULT_OPTIONS, urgent]

    run_async(main)


@pytest.mark.parametrize("length", [1, 4095, 4096, 5000])
def test_texts_are_encoded_whatever_their_length(
    make_engine: MakeEngine, open_async: OpenAsync, run_async: RunAsync, length: int
) -> None:
    async def main() -> None:
        engine = make_engine(longest=6000, blocks=2000, rows=6000)
        [done] = await open_async(engine).generate("a" * length, SamplingParams(max_tokens=1))
        assert (done.error, done.usage.prompt_tokens) == (None, length)

    run_async(main)


# --- a slow consumer ---------------------------------------------------------------------------


def test_what_a_slow_consumer_did_not_take_comes_as_one_delta(
    make_engine: MakeEngine, open_async: OpenAsync, run_async: RunAsync
) -> None:
    async def main() -> None:
        llm = open_async()
        slow = await llm.submit([10], LONG)
        # Another request begins and ends while nobody reads the first one.
        [quick] = await llm.generate([[20]], PARAMS)
        assert quick.finish_reason == "length"
        await slow.result()
        deltas = [delta async for delta in slow]
        assert len(deltas) == 1
        assert joined(deltas) == alone(make_engine, [10], LONG)

    run_async(main)


def test_a_consumer_that_keeps_up_gets_every_step(
    gated: tuple[Engine, Gate], open_async: OpenAsync, run_async: RunAsync
) -> None:
    engine, gate = gated

    async def main() -> None:
        stream = await open_async(engine).submit([10], PARAMS)
        for _ in range(5):
            gate.pass_through(1)
            assert len((await anext(stream)).token_ids) == 1
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    run_async(main)


# --- ends that the caller makes ----------------------------------------------------------------


def test_an_aborted_request_says_so_in_its_last_delta(
    gated: tuple[Engine, Gate], open_async: OpenAsync, run_async: RunAsync
) -> None:
    engine, gate = gated

    async def main() -> None:
        llm = open_async(engine)
        stream = await llm.submit([10], LONG)
        gate.pass_through(1)
        await anext(stream)
        stream.abort()
        gate.open()
        [*_, last] = [delta async for delta in stream]
        [done] = await stream.result()
        assert (done.finish_reason, done.error, last.completion) == ("abort", None, done)
        stream.abort()
        await idle(llm, engine)

    run_async(main)


def test_one_of_several_answers_can_be_aborted(
    gated: tuple[Engine, Gate], open_async: OpenAsync, run_async: RunAsync
) -> None:
    engine, gate = gated

    async def main() -> None:
        stream = await open_async(engine).submit([10], SamplingParams(n=3, max_tokens=4))
        gate.pass_through(1)
        await anext(stream)
        stream.abort(1)
        gate.open()
        reasons = [done.finish_reason for done in await stream.result()]
        assert reasons == ["length", "abort", "length"]

    run_async(main)


def test_a_request_that_is_aborted_before_the_engine_saw_it_ends_too(
    gated: tuple[Engine, Gate], open_async: OpenAsync, run_async: RunAsync
) -> None:
    engine, gate = gated

    async def main() -> None:
        llm = open_async(engine)
        first = await llm.submit([10], PARAMS)
        await asyncio.to_thread(gate.reached.wait, WAIT_S)
        stream = await llm.submit([20], LONG)  # in the middle of a step of the first one
        stream.abort()
        gate.open()
        [done] = await stream.result()
        assert (done.finish_reason, done.token_ids) == ("abort", ())
        assert (await first.result())[0].finish_reason == "length"

    run_async(main)


async def leave_by_aclose(stream: Any) -> None:
    await anext(stream)
    await stream.aclose()
    await stream.aclose()


async def leave_by_block(stream: Any) -> None:
    async with stream:
        async for _ in stream:
            break


async def leave_by_error(stream: Any) -> None:
    with contextlib.suppress(KeyError):
        async with stream:
            await anext(stream)
            raise KeyError


async def leave_by_timeout(stream: Any) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.01), stream:
            async for _ in stream:
                pass


async def leave_by_cancelling_the_reader(stream: Any) -> None:
    async def read() -> None:
        async for _ in stream:
            pass

    await cancel(asyncio.create_task(read()))


async def leave_by_cancelling_the_result(stream: Any) -> None:
    await cancel(asyncio.create_task(stream.result()))


async def cancel(task: asyncio.Task[Any]) -> None:
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])


LEAVING = [
    leave_by_aclose,
    leave_by_block,
    leave_by_error,
    leave_by_timeout,
    leave_by_cancelling_the_reader,
    leave_by_cancelling_the_result,
]


@pytest.mark.parametrize("leave", LEAVING)
def test_whoever_leaves_ends_the_request_and_frees_what_it_held(
    make_engine: MakeEngine, open_async: OpenAsync, run_async: RunAsync, leave: Any
) -> None:
    # As long as a request may be that never ends on its own during a test.
    engine = make_engine(longest=100_000, blocks=50_000)
    endless = SamplingParams(max_tokens=90_000, seed=1)
    slow = Event()
    engine.runner.before_step = lambda plan: slow.wait(0.001)  # type: ignore[method-assign]

    async def main() -> None:
        llm = open_async(engine)
        stream = await llm.submit([10], endless)
        await leave(stream)
        await idle(llm, engine)
        [done] = await stream.result()
        assert done.finish_reason == "abort"

    run_async(main)


def test_closing_a_stream_returns_when_it_holds_nothing_any_more(
    gated: tuple[Engine, Gate], open_async: OpenAsync, run_async: RunAsync
) -> None:
    engine, gate = gated

    async def main() -> None:
        llm = open_async(engine)
        stream = await llm.submit([10], LONG)
        for step in range(2):  # the second one has begun, and waits
            await asyncio.to_thread(gate.reached.wait, WAIT_S)
            gate.reached.clear()
            gate.pass_through(1 - step)
        closing = asyncio.create_task(stream.aclose())
        await asyncio.sleep(0.01)
        assert not closing.done()  # the step that runs is not over
        gate.open()
        await closing
        assert (llm.in_work, len(engine.batch)) == (0, 0)
        engine.check_integrity()

    run_async(main)


def test_a_shielded_result_can_be_waited_for_a_limited_time(
    gated: tuple[Engine, Gate], open_async: OpenAsync, run_async: RunAsync
) -> None:
    engine, gate = gated

    async def main() -> None:
        stream = await open_async(engine).submit([10], PARAMS)
        result = asyncio.ensure_future(stream.result())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(result), 0.01)
        gate.open()
        assert (await result)[0].finish_reason == "length"

    run_async(main)


def test_a_closed_stream_gives_no_further_delta(open_async: OpenAsync, run_async: RunAsync) -> None:
    async def main() -> None:
        stream = await open_async().submit([10], LONG)
        await stream.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    run_async(main)


def test_letting_go_of_a_stream_ends_its_request(
    gated: tuple[Engine, Gate], open_async: OpenAsync, run_async: RunAsync
) -> None:
    engine, gate = gated

    async def main() -> None:
        llm = open_async(engine)
        stream = await llm.submit([10], LONG)
        gate.pass_through(2)
        await anext(stream)
        del stream
        gc.collect()
        gate.open()
        await idle(llm, engine)
        assert len(engine.runner.plans) < LONG.max_tokens

    run_async(main)


def test_a_cancelled_generate_ends_all_its_requests(
    gated: tuple[Engine, Gate], open_async: OpenAsync, run_async: RunAsync
) -> None:
    engine, gate = gated

    async def main() -> None:
        llm = open_async(engine, places=3)
        task = asyncio.create_task(llm.generate([[10 + i] for i in range(9)], LONG))
        await asyncio.to_thread(gate.reached.wait, WAIT_S)
        await cancel(task)
        gate.open()
        await idle(llm, engine)
        assert len(engine.runner.plans) < LONG.max_tokens

    run_async(main)


# --- back-pressure -----------------------------------------------------------------------------


def test_a_request_without_room_is_refused_if_it_does_not_wait(
    gated: tuple[Engine, Gate], open_async: OpenAsync, run_async: RunAsync
) -> None:
    engine, gate = gated

    async def main() -> None:
        llm = open_async(engine, places=2)
        streams = [await llm.submit([10], PARAMS, wait=False) for _ in range(2)]
        with pytest.raises(EngineBusy, match="2 answers are in work"):
            await llm.submit([10], PARAMS, wait=False)
        gate.open()
        for stream in streams:
            await stream.result()
        await idle(llm, engine)
        # Nobody read the deltas: ended requests need no place.
        await (await llm.submit([10], PARAMS, wait=False)).result()

    run_async(main)


def test_a_request_that_waits_is_taken_when_another_one_ends(
    gated: tuple[Engine, Gate], open_async: OpenAsync, run_async: RunAsync
) -> None:
    engine, gate = gated

    async def main() -> None:
        llm = open_async(engine, places=1)
        first = await llm.submit([10], PARAMS)
        second = asyncio.create_task(llm.submit([20], PARAMS))
        gate.pass_through(4)
        await asyncio.sleep(0.01)
        assert not second.done()
        gate.open()
        await first.result()
        assert (await (await second).result())[0].finish_reason == "length"

    run_async(main)


def test_refusals_and_aborts_give_their_places_back(
    open_async: OpenAsync, run_async: RunAsync
) -> None:
    async def main() -> None:
        llm = open_async(places=2)
        for _ in range(5):
            await (await llm.submit([], SamplingParams(n=2))).result()
            await (await llm.submit([10], LONG)).aclose()
            await (await llm.submit([10, "a"], PARAMS)).result()  # type: ignore[list-item]
        assert llm.in_work == 0

    run_async(main)


# --- failures ----------------------------------------------------------------------------------


class Broken(FakeRunner):
    """Fails once, in its second step."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(265, 4)
        self.error: BaseException | None = error

    def launch(self, plan: StepPlan, before: Any) -> Any:
        if len(self.plans) == 1 and self.error is not None:
            error, self.error = self.error, None
            raise error
        return super().launch(plan, before)


@pytest.mark.parametrize("error", [ValueError("of a component"), MemoryError()])
def test_a_component_that_raises_ends_the_requests_of_its_step(
    make_engine: MakeEngine, open_async: OpenAsync, run_async: RunAsync, error: Exception
) -> None:
    async def main() -> None:
        llm = open_async(make_engine(runner=Broken(error)))
        [done] = await llm.generate([[10]], PARAMS)
        assert type(error).__name__ in str(done.error)
        [again] = await llm.generate([[10]], PARAMS)
        assert (again.error, llm.failure) == (None, None)

    run_async(main)


def test_a_step_that_fails_as_a_whole_is_told_to_all_and_the_engine_goes_on(
    make_engine: MakeEngine, open_async: OpenAsync, run_async: RunAsync
) -> None:
    engine = make_engine(asynchronous=False)
    step, calls = engine.step, []

    def failing() -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise EngineError("books do not match")
        return step()

    engine.step = failing  # type: ignore[method-assign]

    async def main() -> None:
        llm = open_async(engine)
        params = SamplingParams(n=3, max_tokens=50)
        stream = await llm.submit([10], params)
        read = asyncio.create_task(anext(stream))
        with pytest.raises(EngineError, match=r"a step failed .*books do not match"):
            await stream.result()
        await read  # what came before the failure is not lost
        with pytest.raises(EngineError, match="books do not match"):
            await collect(stream)
        await stream.aclose()
        [again] = await llm.generate([[10]], PARAMS)
        assert again.error is None
        await idle(llm, engine)

    run_async(main)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_an_engine_that_dies_tells_everyone_who_waits(
    make_engine: MakeEngine, open_async: OpenAsync, run_async: RunAsync, error: BaseException
) -> None:
    engine = make_engine(runner=Broken(error))
    gate = Gate()
    engine.runner.before_step = gate  # type: ignore[method-assign]
    text = f"the engine's thread ended: {type(error).__name__}"

    async def main() -> None:
        llm = open_async(engine, places=2)
        first, second = [await llm.submit([10], PARAMS) for _ in range(2)]
        tasks = [
            asyncio.create_task(first.result()),
            asyncio.create_task(collect(second)),
            asyncio.create_task(llm.generate([[20]], PARAMS)),  # waits for room
        ]
        gate.open()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(one) for one in ended] == [EngineError] * 3
        with pytest.raises(EngineError, match=text):
            await llm.submit([10], PARAMS)
        assert text in str(llm.failure)
        await first.aclose()
        await llm.close()
        assert llm.in_work == 0

    run_async(main)


async def collect(stream: Any) -> list[Delta]:
    return [delta async for delta in stream]


def test_a_request_that_the_engine_never_looked_at_is_told_of_its_death(
    make_engine: MakeEngine, open_async: OpenAsync, run_async: RunAsync
) -> None:
    gate = Gate()

    def die(plan: StepPlan) -> None:
        gate(plan)
        raise SystemExit

    async def main() -> None:
        llm = open_async(make_engine(runner=FakeRunner(265, 4, die)))
        first = await llm.submit([10], PARAMS)
        await asyncio.to_thread(gate.reached.wait, WAIT_S)
        late = await llm.submit([20], PARAMS)
        gate.open()
        with pytest.raises(EngineError, match="the engine's thread ended: SystemExit"):
            await late.result()
        await first.aclose()

    run_async(main)


def test_a_request_that_breaks_the_door_fails_alone(
    make_engine: MakeEngine, open_async: OpenAsync, run_async: RunAsync
) -> None:
    engine = make_engine(longest=100_000, blocks=50_000)
    submit = engine.submit

    def failing(index: int, ids: Any, params: SamplingParams, **options: Any) -> int:
        if options["sample"] == 1:
            raise RuntimeError("of a bug")
        return submit(index, ids, params, **options)

    engine.submit = failing  # type: ignore[method-assign]

    async def main() -> None:
        llm = open_async(engine)
        bad = await llm.submit([10], SamplingParams(n=3, max_tokens=90_000))
        with pytest.raises(EngineError, match="could not be queued: RuntimeError: of a bug"):
            await bad.result()
        [done] = await llm.generate([[10]], PARAMS)
        assert done.error is None
        await idle(llm, engine)

    run_async(main)


# --- closing -----------------------------------------------------------------------------------


def test_closing_ends_what_is_in_work_as_aborted_with_the_reason(
    gated: tuple[Engine, Gate], open_async: OpenAsync, run_async: RunAsync
) -> None:
    engine, gate = gated

    async def main() -> list[Completion]:
        llm = open_async(engine, places=6)
        streams = [await llm.submit([10 + i], LONG) for i in range(5)]  # the last one waits
        await asyncio.to_thread(gate.reached.wait, WAIT_S)
        streams.append(await llm.submit([20], LONG))  # not looked at yet
        late = asyncio.create_task(llm.submit([30], LONG))  # waits for room
        reader = asyncio.create_task(collect(streams[0]))
        await asyncio.sleep(0)
        closing = asyncio.create_task(llm.close())
        await asyncio.sleep(0)
        gate.open()
        await closing
        await llm.close()
        with pytest.raises(EngineError, match="this AsyncLLM was closed"):
            await late
        with pytest.raises(EngineError, match="this AsyncLLM was closed"):
            await llm.submit([10], PARAMS)
        assert (await reader)[-1].completion is not None
        assert (len(engine.batch), llm.in_work, llm.failure) == (0, 0, None)
        return [(await stream.result())[0] for stream in streams]

    done = run_async(main)
    assert [one.finish_reason for one in done] == ["abort"] * 6
    assert {str(one.error) for one in done} == {
        "the AsyncLLM was closed while this request ran (ask again)"
    }
    assert {len(one.token_ids) for one in done[:4]} == {1}


def test_closing_gives_the_engine_back(
    make_engine: MakeEngine, open_async: OpenAsync, run_async: RunAsync
) -> None:
    async def main() -> None:
        async with open_async() as llm:
            await llm.generate([[10]], PARAMS)
        assert llm._llm.held is None
        with pytest.raises(EngineError, match="closed"):
            _ = llm._thread._router.engine
        assert not llm._thread._thread.is_alive()

    run_async(main)


def test_a_cancelled_close_still_closes(
    gated: tuple[Engine, Gate], open_async: OpenAsync, run_async: RunAsync
) -> None:
    engine, gate = gated

    async def main() -> None:
        llm = open_async(engine)
        stream = await llm.submit([10], LONG)
        await asyncio.to_thread(gate.reached.wait, WAIT_S)
        await cancel(asyncio.create_task(llm.close()))
        gate.open()
        assert (await stream.result())[0].finish_reason == "abort"
        await llm.close()

    run_async(main)


def test_letting_go_of_it_ends_the_thread(open_async: OpenAsync, run_async: RunAsync) -> None:
    async def main() -> None:
        llm = open_async()
        await llm.generate([[10]], PARAMS)
        thread = llm._thread
        stream = await llm.submit([10], PARAMS)
        del llm
        gc.collect()
        [done] = await stream.result()  # a stream keeps it
        assert done.finish_reason == "length"
        del stream
        gc.collect()
        await thread.ended()

    run_async(main)


# --- threads, loops and processes ---------------------------------------------------------------


def test_tasks_of_several_loops_use_one_engine(
    make_engine: MakeEngine, open_async: OpenAsync, run_async: RunAsync
) -> None:
    engine = make_engine()
    llm = open_async(engine, places=5)
    wanted = {seed: alone(make_engine, [10], params_of(seed)) for seed in range(6)}
    found: dict[tuple[int, int], tuple[int, ...]] = {}

    def loop(name: int) -> None:
        async def main() -> None:
            async def ask(seed: int) -> None:
                async with await llm.submit([10], params_of(seed)) as stream:
                    found[name, seed] = joined([delta async for delta in stream])

            await asyncio.gather(*(ask(seed) for seed in range(6)))

        run_async(main)

    threads = [Thread(target=loop, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert found == {(name, seed): wanted[seed] for name in range(4) for seed in range(6)}
    assert llm.in_work == 0
    engine.check_integrity()


def params_of(seed: int) -> SamplingParams:
    return SamplingParams(max_tokens=3 + seed, seed=seed)


def test_tasks_that_do_everything_at_once_get_right_tokens_and_leave_nothing_behind(
    make_engine: MakeEngine,
    open_async: OpenAsync,
    run_async: RunAsync,
    request: pytest.FixtureRequest,
) -> None:
    engine = make_engine(rows=8, sequences=3, blocks=24)
    llm = open_async(engine, places=6)
    wanted = {seed: alone(make_engine, [10], params_of(seed)) for seed in range(10)}

    async def live(name: str) -> None:
        chance = random.Random(name)
        for _ in range(10):
            seed = chance.randrange(10)
            stream = await llm.submit([10], params_of(seed))
            tokens: tuple[int, ...] = ()
            way = chance.choice(["read", "leave", "abort", "cancel", "drop", "result"])
            if way == "cancel":
                task = asyncio.create_task(collect(stream))
                await asyncio.sleep(chance.choice([0, 0.001]))
                task.cancel()
                await asyncio.wait([task])
            elif way in ("read", "leave", "abort"):
                async for delta in stream:
                    tokens += delta.token_ids
                    if way == "abort":
                        stream.abort()
                    elif way == "leave":
                        await stream.aclose()
            if way != "drop":
                [done] = await stream.result()
                assert done.token_ids == wanted[seed][: len(done.token_ids)]
                assert done.token_ids[: len(tokens)] == tokens
                assert done.finish_reason == "abort" or done.token_ids == wanted[seed]

    async def main() -> None:
        await asyncio.gather(*(live(f"{request.node.name}{i}") for i in range(10)))
        gc.collect()
        await idle(llm, engine)

    run_async(main)


def test_a_stream_of_one_loop_can_be_read_in_another(
    make_engine: MakeEngine, open_async: OpenAsync, run_async: RunAsync
) -> None:
    llm = open_async()

    async def begin() -> Any:
        stream = await llm.submit([10], LONG)
        return stream, await anext(stream)

    async def go_on() -> list[Delta]:
        return await collect(stream)

    stream, first = run_async(begin)
    assert joined([first, *run_async(go_on)]) == alone(make_engine, [10], LONG)


def test_the_thread_sleeps_when_there_is_nothing_to_do(
    open_async: OpenAsync, run_async: RunAsync
) -> None:
    async def main() -> None:
        llm = open_async()
        obey, rounds = llm._thread._obey_all, []

        def counted(**options: bool) -> None:
            rounds.append(1)
            obey(**options)

        llm._thread._obey_all = counted  # type: ignore[method-assign]
        await llm.generate([[10]], PARAMS)
        before = len(rounds)
        await asyncio.sleep(0.05)
        assert len(rounds) <= before + 1  # the one that it falls asleep in

    run_async(main)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_is_told_that_it_has_no_engine(
    open_async: OpenAsync, run_async: RunAsync
) -> None:
    llm = open_async()

    async def use() -> None:
        with pytest.raises(EngineError, match="forked from"):
            await llm.submit([10], PARAMS)
        await llm.close()

    child = os.fork()
    if child == 0:
        status = 1
        try:
            asyncio.run(asyncio.wait_for(use(), WAIT_S))
            llm._thread._at_exit()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0

    async def main() -> None:
        assert (await llm.generate([[10]], PARAMS))[0].error is None

    run_async(main)
