"""Callers that go away at any moment, and nothing of theirs that stays."""

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.interfaces.async_engine import Finished, GenerateRequest, Tokens
from deepinfer_core.server.engine_process import EngineProcess
from deepinfer_core.testing.fake_service import FakeService

Run = Callable[[Callable[[], Any]], None]
OpenProcess = Callable[..., Any]

REQUESTS = 1000
AT_ONCE = 60

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc"
)


def descriptors(process_id: int) -> int:
    return len(os.listdir(f"/proc/{process_id}/fd"))


async def come_and_go(engine: EngineProcess, number: int, rng: random.Random) -> None:
    """One caller; most of them leave early, each in a way of its own."""
    prompt = tuple(20 + rng.randrange(6) for _ in range(rng.randrange(1, 40)))
    params = SamplingParams(max_tokens=rng.randrange(1, 40), seed=number, ignore_eos=True)
    request = GenerateRequest(
        request_id=f"r{number}", prompt_token_ids=prompt, params=params, timeout_s=30
    )
    way, items_wanted = rng.choice(("stays", "closes", "is cancelled", "aborts")), rng.randrange(6)
    stream = engine.generate(request)
    if way == "is cancelled":
        task = asyncio.ensure_future(_all(stream))
        await asyncio.sleep(rng.uniform(0, 0.02))
        task.cancel()
        await asyncio.wait({task})
        return
    seen = 0
    async for item in stream:
        seen += 1
        if way == "aborts" and seen == items_wanted:
            engine.abort(request.request_id)
        if way == "closes" and seen > items_wanted:
            break
        if way == "stays" and isinstance(item, Finished):
            assert item.completion_tokens == params.max_tokens
    await stream.aclose()  # type: ignore[attr-defined]


async def _all(stream: Any) -> int:
    return sum([len(item.token_ids) async for item in stream if isinstance(item, Tokens)])


async def figures(engine: EngineProcess) -> dict[str, float]:
    lines = [line for line in (await engine.metrics_text()).splitlines() if line[0] != "#"]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


@needs_proc
def test_a_thousand_callers_that_come_and_go_leave_nothing(
    open_process: OpenProcess, run_async: Run, data_seed: int
) -> None:
    async def main() -> None:
        rng, places = random.Random(data_seed), asyncio.Semaphore(AT_ONCE)
        async with open_process(FakeService(step_s=0.001, sequences=12)) as engine:
            assert engine.process_id is not None
            own, other = descriptors(os.getpid()), descriptors(engine.process_id)

            async def call(number: int) -> None:
                async with places:
                    await come_and_go(engine, number, rng)

            await asyncio.gather(*[call(number) for number in range(REQUESTS)])
            while engine.in_work:  # noqa: ASYNC110 - nothing tells when it is so
                await asyncio.sleep(0.002)
            found = await figures(engine)
            assert found["deepinfer_requests_running"] == 0
            assert found["deepinfer_requests_waiting"] == 0
            assert found['deepinfer_kv_cache_blocks{state="used"}'] == 0
            assert found['deepinfer_state_slots{state="used"}'] == 0
            # Some were cancelled before the engine was asked; the rest it has seen through.
            ended = sum(v for k, v in found.items() if "requests_finished_total" in k)
            assert ended == found["deepinfer_requests_total"] > REQUESTS / 2
            assert found["deepinfer_requests_aborted_total"] > REQUESTS / 10
            assert descriptors(os.getpid()) == own
            assert descriptors(engine.process_id) == other
            assert asyncio.all_tasks() == {asyncio.current_task(), engine._supervisor}

    run_async(main)
