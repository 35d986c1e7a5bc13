"""Who learns of it when an engine in a thread fails, dies or is closed?"""

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest
from deepinfer_core.engine.async_llm import AsyncLLM
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.outputs import Completion
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import EngineError
from deepinfer_core.schedule.plan import StepPlan
from deepinfer_core.testing.fake_runner import FakeRunner
from deepinfer_core.testing.gated_steps import Gate, collect, idle

MakeEngine = Callable[..., Engine]

MakeEngine = Callable[..., Engine]
OpenAsync = Callable[..., AsyncLLM]
RunAsync = Callable[[Callable[[], Any]], Any]

PARAMS = SamplingParams(max_tokens=5, seed=1)
LONG = SamplingParams(max_tokens=50, seed=1)
WAIT_S = 10


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
        closing = asyncio.create_task(llm.close())
        await asyncio.sleep(0.01)
        closing.cancel()
        await asyncio.wait([closing])
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
