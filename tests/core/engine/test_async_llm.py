"""An engine in a thread of its own, and coroutines that use it: what they get, and when."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from deepinfer_core.engine.async_llm import AsyncLLM
from deepinfer_core.engine.core import Engine
from deepinfer_core.engine.request_options import DEFAULT_OPTIONS, RequestOptions
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import EngineBusy, RequestError
from deepinfer_core.testing.gated_steps import Gate, alone, idle, joined

MakeEngine = Callable[..., Engine]

MakeEngine = Callable[..., Engine]
OpenAsync = Callable[..., AsyncLLM]
RunAsync = Callable[[Callable[[], Any]], Any]

PARAMS = SamplingParams(max_tokens=5, seed=1)
LONG = SamplingParams(max_tokens=50, seed=1)


def test_a_stream_gives_the_tokens_and_then_the_completion(
    make_engine: MakeEngine, open_async: OpenAsync, run_async: RunAsync
) -> None:
    async def main() -> None:
        stream = await open_async().submit([10, 11], PARAMS)
        deltas = [delta async for delta in stream]
        assert joined(deltas) == alone(make_engine(), [10, 11], PARAMS)
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
        assert done[0].token_ids == alone(make_engine(), [10], params[0])

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
        assert joined(deltas) == alone(make_engine(), [10], LONG)

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
