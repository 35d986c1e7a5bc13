"""Requests through an engine's process."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import DeadlineExceeded, EngineBusy, RequestError
from deepinfer_core.interfaces.async_engine import (
    Finished,
    GenerateRequest,
    Item,
    Started,
    Tokens,
)
from deepinfer_core.server.engine_process import EngineProcess
from deepinfer_core.testing.fake_service import FakeService, fake_engine

Run = Callable[[Callable[[], Any]], None]
OpenProcess = Callable[..., Any]

PROMPT = (20, 21, 22, 23, 24, 25)


def request(name: str = "a", max_tokens: int = 6, **changes: Any) -> GenerateRequest:
    params = SamplingParams(max_tokens=max_tokens, **{"seed": 1, "ignore_eos": True, **changes})
    return GenerateRequest(request_id=name, prompt_token_ids=PROMPT, params=params)


async def items(engine: EngineProcess, asked: GenerateRequest) -> list[Item]:
    return [item async for item in engine.generate(asked)]


def alone(asked: GenerateRequest) -> tuple[tuple[int, ...], str]:
    """Tokens and text that an engine in this process gives."""
    engine = fake_engine(FakeService())
    engine.submit(0, asked.prompt_token_ids, asked.params)
    tokens: tuple[int, ...] = ()
    text = ""
    while len(engine.batch):
        for update in engine.step():
            tokens += update.delta.token_ids
            text += update.delta.text
    return tokens, text


def joined(found: list[Item]) -> tuple[tuple[int, ...], str]:
    grown = [item for item in found if isinstance(item, Tokens)]
    return tuple(t for one in grown for t in one.token_ids), "".join(one.text for one in grown)


def test_items_come_in_order_with_the_tokens_of_an_engine_in_this_process(
    open_process: OpenProcess, run_async: Run
) -> None:
    async def main() -> None:
        async with open_process() as engine:
            found = await items(engine, request())
            assert found[0] == Started(prompt_tokens=6, cached_tokens=0)
            assert joined(found) == alone(request())
            assert isinstance(found[-1], Finished)
            assert (found[-1].reason, found[-1].completion_tokens) == ("length", 6)
            assert found[-1].prompt_tokens == 6
            again = await items(engine, request("b"))
            assert again[0] == Started(prompt_tokens=6, cached_tokens=4)  # a block of four
            assert joined(again) == joined(found)
            assert engine.in_work == 0

    run_async(main)


def test_log_probabilities_of_prompt_and_answer_come_along(
    open_process: OpenProcess, run_async: Run
) -> None:
    async def main() -> None:
        async with open_process() as engine:
            found = await items(engine, request(logprobs=2, prompt_logprobs=0))
            logprobs = [one for item in found if isinstance(item, Tokens) for one in item.logprobs]
            assert tuple(one.token_id for one in logprobs) == joined(found)[0]
            assert isinstance(found[-1], Finished)
            scores = found[-1].prompt_logprobs
            assert scores is not None
            assert scores[0] is None
            assert [one.token_id for one in scores[1:] if one] == list(PROMPT[1:])

    run_async(main)


def test_many_requests_at_once_get_their_own_tokens(
    open_process: OpenProcess, run_async: Run
) -> None:
    async def main() -> None:
        async with open_process() as engine:
            asked = [request(f"r{n}", 1 + n % 9, seed=n) for n in range(60)]
            found = await asyncio.gather(*(items(engine, one) for one in asked))
            for one, got in zip(asked, found, strict=True):
                assert joined(got) == alone(one)

    run_async(main)


def test_bad_requests_are_refused_before_they_start_as_the_engine_says_it(
    open_process: OpenProcess, run_async: Run
) -> None:
    def of(prompt: tuple[int, ...], **changes: Any) -> GenerateRequest:
        plain = SamplingParams(max_tokens=5)
        return GenerateRequest(
            request_id="a", prompt_token_ids=prompt, **{"params": plain, **changes}
        )

    bad = {
        "n is 2": request(n=2),
        "265": request(logit_bias={265: 1.0}),
        "prompt is 265": of((265,)),
        "no token id": of((-1,)),
        "empty": of(()),
        "priority": of((5,), priority=99),
        "600": of((5,) * 600),
    }

    async def main() -> None:
        async with open_process() as engine:
            for text, asked in bad.items():
                with pytest.raises(RequestError, match=text) as caught:
                    await anext(engine.generate(asked))
                assert caught.value.hint
                assert engine.in_work == 0
            assert joined(await items(engine, request())) == alone(request())

    run_async(main)


def test_a_request_that_runs_out_of_time_says_so_behind_its_tokens(
    open_process: OpenProcess, run_async: Run
) -> None:
    async def main() -> None:
        async with open_process(FakeService(step_s=0.01)) as engine:
            params = SamplingParams(max_tokens=500, ignore_eos=True)
            asked = GenerateRequest(
                request_id="a", prompt_token_ids=PROMPT, params=params, timeout_s=0.2
            )
            found: list[Item] = []

            async def take_all() -> None:
                async for item in engine.generate(asked):
                    found.append(item)  # noqa: PERF401 - what came before the error is wanted

            with pytest.raises(DeadlineExceeded, match=r"0\.2 s"):
                await take_all()
            assert joined(found)[0]

    run_async(main)


def test_one_more_request_than_there_are_places_is_refused(
    open_process: OpenProcess, run_async: Run
) -> None:
    async def main() -> None:
        async with open_process(FakeService(step_s=0.01), max_queued=2) as engine:
            running = [engine.generate(request(name, 400)) for name in "ab"]
            for one in running:
                await anext(one)
            with pytest.raises(EngineBusy, match="2 requests are in work, of 2"):
                await anext(engine.generate(request("c")))
            await running[0].aclose()
            while engine.in_work > 1:  # noqa: ASYNC110 - nothing tells when it is so
                await asyncio.sleep(0.001)
            assert isinstance(await anext(engine.generate(request("c"))), Started)
            await running[1].aclose()

    run_async(main)


def test_no_two_requests_in_work_have_one_name(open_process: OpenProcess, run_async: Run) -> None:
    async def main() -> None:
        async with open_process(FakeService(step_s=0.01)) as engine:
            first = engine.generate(request("a", 400))
            await anext(first)
            with pytest.raises(RequestError, match="'a' is in work"):
                await anext(engine.generate(request("a")))
            await first.aclose()
            # The name is free at once: a client that comes back need not wait for the engine.
            assert isinstance(await anext(engine.generate(request("a"))), Started)

    run_async(main)


def test_aborting_by_name_ends_the_iterator_and_says_whether_there_was_one(
    open_process: OpenProcess, run_async: Run
) -> None:
    async def main() -> None:
        async with open_process(FakeService(step_s=0.01)) as engine:
            stream = engine.generate(request("a", 400))
            await anext(stream)
            assert engine.abort("a")
            *_, last = [item async for item in stream]
            assert isinstance(last, Finished)
            assert (last.reason, last.aborted_by) == ("abort", "operator")
            assert not engine.abort("a")

    run_async(main)


def test_leaving_an_iterator_in_any_way_ends_the_request(
    open_process: OpenProcess, run_async: Run
) -> None:
    async def main() -> None:
        async with open_process(FakeService(step_s=0.005)) as engine:
            closed = engine.generate(request("a", 400))
            await anext(closed)
            await closed.aclose()
            waiting = asyncio.ensure_future(items(engine, request("b", 400)))
            await asyncio.sleep(0.02)
            waiting.cancel()
            await asyncio.wait({waiting})
            failing = engine.generate(request("c", 400))
            with pytest.raises(KeyError):
                await failing.athrow(KeyError("c"))
            while engine.in_work:  # noqa: ASYNC110 - nothing tells when it is so
                await asyncio.sleep(0.001)
            # The last one was never asked for: it failed before it began.
            assert "deepinfer_requests_aborted_total 2.0" in await engine.metrics_text()

    run_async(main)


def test_a_slow_consumer_gets_fewer_longer_items_and_loses_nothing(
    open_process: OpenProcess, run_async: Run
) -> None:
    async def main() -> None:
        async with open_process() as engine:
            slow = engine.generate(request("slow", 300, logprobs=0))
            found = [await anext(slow)]
            # It runs to its end, although nobody takes anything.
            while engine.in_work:  # noqa: ASYNC110 - nothing tells when it is so
                await asyncio.sleep(0.001)
            found += [item async for item in slow]
            assert [type(item) for item in found] == [Started, Tokens, Finished]
            assert joined(found) == alone(request("slow", 300))
            assert isinstance(found[1], Tokens)
            assert len(found[1].logprobs) == 300

    run_async(main)


def test_metrics_come_from_the_engine_and_say_what_sending_took(
    open_process: OpenProcess, run_async: Run
) -> None:
    async def main() -> None:
        async with open_process() as engine:
            await items(engine, request())
            text = await engine.metrics_text()
            assert "deepinfer_requests_total 1.0" in text
            figures = dict(line.split(" ") for line in text.splitlines() if line[0] != "#")
            # Six tokens come in six turns at least, and each is sent by itself.
            assert float(figures["deepinfer_step_send_seconds_count"]) >= 6

    run_async(main)
