"""Can many tasks, loops and threads use one engine in a thread at once?"""

import asyncio
import gc
import os
import random
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
from deepinfer_core.engine.async_llm import AsyncLLM
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.outputs import Delta
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import EngineError
from deepinfer_core.testing.gated_steps import alone, collect, idle, joined

MakeEngine = Callable[..., Engine]

MakeEngine = Callable[..., Engine]
OpenAsync = Callable[..., AsyncLLM]
RunAsync = Callable[[Callable[[], Any]], Any]

PARAMS = SamplingParams(max_tokens=5, seed=1)
LONG = SamplingParams(max_tokens=50, seed=1)
WAIT_S = 10


def test_tasks_of_several_loops_use_one_engine(
    make_engine: MakeEngine, open_async: OpenAsync, run_async: RunAsync
) -> None:
    engine = make_engine()
    llm = open_async(engine, places=5)
    wanted = {seed: alone(make_engine(), [10], params_of(seed)) for seed in range(6)}
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
    wanted = {seed: alone(make_engine(), [10], params_of(seed)) for seed in range(10)}

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
    assert joined([first, *run_async(go_on)]) == alone(make_engine(), [10], LONG)


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
