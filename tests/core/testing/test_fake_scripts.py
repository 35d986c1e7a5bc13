"""The engine that tests of servers ask, where it follows a script word by word."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import cycle
from typing import Any, TypeVar

import pytest
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import EngineError, RequestError
from deepinfer_core.interfaces.async_engine import Finished, GenerateRequest, Item, Started, Tokens
from deepinfer_core.testing.byte_tokenizer import byte_tokens
from deepinfer_core.testing.fake_answers import Script
from deepinfer_core.testing.fake_async_engine import FakeAsyncEngine

T = TypeVar("T")

PROMPT = byte_tokens("hello, engine")
ASK = GenerateRequest(
    request_id="a", prompt_token_ids=PROMPT, params=SamplingParams(max_tokens=1000)
)
END = 1


def run(body: Callable[[], Awaitable[T]]) -> T:
    async def main() -> T:
        async with asyncio.timeout(10):
            return await body()

    return asyncio.run(main())


def asked(engine: FakeAsyncEngine, request: GenerateRequest = ASK) -> list[Item]:
    async def answer() -> list[Item]:
        return [item async for item in engine.generate(request)]

    return run(answer)


STEPS = [Tokens((20, 21), "by"), Tokens((END, 22), "hook")]


def scripted(**fields: Any) -> FakeAsyncEngine:
    return FakeAsyncEngine(lambda request: Script(steps=STEPS, **fields))


@pytest.mark.parametrize("limit", [{}, {"max_tokens": 1}, {"stop": ["b"]}])
def test_a_script_is_given_as_it_is(limit: dict[str, Any]) -> None:
    params = SamplingParams(**{"max_tokens": 1000, **limit})
    request = replace(ASK, params=params)
    started, *steps, finished = asked(scripted(reason="length", cached=3), request)
    assert started == Started(prompt_tokens=len(PROMPT), cached_tokens=3)
    assert steps == STEPS
    assert isinstance(finished, Finished)
    assert (finished.reason, finished.completion_tokens) == ("length", 4)


def test_a_script_may_end_before_it_starts_or_fail_at_its_end() -> None:
    waited = FakeAsyncEngine(lambda request: Script(reason="abort", starts=False))
    [finished] = asked(waited)
    assert isinstance(finished, Finished)
    assert finished.reason == "abort"
    failing = scripted(failure=EngineError("broke"))
    given: list[Item] = []

    async def body() -> None:
        async for item in failing.generate(ASK):
            given.append(item)  # noqa: PERF401 - what came before the error counts

    with pytest.raises(EngineError, match="broke"):
        run(body)
    assert given[1:] == STEPS
    assert list(failing.outcomes.values()) == ["failed"]


def test_an_endless_script_ends_when_it_is_told_to() -> None:
    async def body() -> tuple[int, list[Item]]:
        engine = FakeAsyncEngine(lambda request: Script(steps=cycle(STEPS)))
        given: list[Item] = []
        async for item in engine.generate(ASK):
            given.append(item)
            if len(given) == 5:
                assert engine.abort("a")
        return engine.in_work, given

    left, given = run(body)
    assert left == 0
    assert isinstance(given[5], Finished)
    assert given[5].reason == "abort"


def test_a_script_stands_still_while_the_engine_is_paused() -> None:
    async def body() -> bool:
        engine = FakeAsyncEngine(lambda request: Script(steps=cycle(STEPS)))
        items = engine.generate(ASK)
        await anext(items)
        engine.pause()
        waiting = asyncio.ensure_future(anext(items))
        for _ in range(20):
            await asyncio.sleep(0)
        went_on = waiting.done()
        engine.resume()
        await waiting
        return went_on

    assert not run(body)


def test_facts_are_as_a_test_says() -> None:
    engine = FakeAsyncEngine(model="m", tokenizer_json=None, vocabulary=300)
    assert (engine.facts.model, engine.facts.tokenizer_json) == ("m", None)
    assert asked(engine, replace(ASK, prompt_token_ids=(299,)))
    with pytest.raises(RequestError):
        asked(engine, replace(ASK, prompt_token_ids=(300,)))
