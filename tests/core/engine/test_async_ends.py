"""What happens to a request of an engine in a thread when its caller ends it or leaves?"""

import asyncio
import contextlib
import gc
from collections.abc import Callable
from threading import Event
from typing import Any

import pytest
from deepinfer_core.engine.async_llm import AsyncLLM
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.testing.gated_steps import Gate, idle

MakeEngine = Callable[..., Engine]

MakeEngine = Callable[..., Engine]
OpenAsync = Callable[..., AsyncLLM]
RunAsync = Callable[[Callable[[], Any]], Any]

PARAMS = SamplingParams(max_tokens=5, seed=1)
LONG = SamplingParams(max_tokens=50, seed=1)
WAIT_S = 10


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
