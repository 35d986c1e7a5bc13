"""The engine that tests of servers ask."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import pytest
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.errors import (
    DeadlineExceeded,
    EngineBusy,
    EngineError,
    EngineUnavailable,
    RequestError,
)
from deepinfer_core.interfaces.async_engine import Finished, GenerateRequest, Item, Started, Tokens
from deepinfer_core.testing.byte_tokenizer import FIRST_BYTE, byte_tokens
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


async def answer(engine: FakeAsyncEngine, request: GenerateRequest = ASK) -> list[Item]:
    return [item async for item in engine.generate(request)]


def asked(engine: FakeAsyncEngine, request: GenerateRequest = ASK) -> list[Item]:
    return run(lambda: answer(engine, request))


def text_of(items: list[Item]) -> str:
    return "".join(item.text for item in items if isinstance(item, Tokens))


def ids_of(items: list[Item]) -> tuple[int, ...]:
    return tuple(token for item in items if isinstance(item, Tokens) for token in item.token_ids)


def reason_of(items: list[Item]) -> str:
    assert isinstance(items[-1], Finished)
    return items[-1].reason


def with_params(**params: object) -> GenerateRequest:
    return replace(ASK, params=SamplingParams(**{"max_tokens": 1000, **params}))  # type: ignore[arg-type]


def test_items_are_started_then_tokens_then_finished() -> None:
    items = asked(FakeAsyncEngine(lambda request: "Hi"))
    assert items[0] == Started(prompt_tokens=len(PROMPT), cached_tokens=0)
    assert ids_of(items) == (*byte_tokens("Hi"), END)
    assert items[-1] == Finished(
        reason="stop", prompt_tokens=len(PROMPT), cached_tokens=0, completion_tokens=3
    )


def test_the_same_seed_and_prompt_give_the_same_words_and_others_give_others() -> None:
    texts = [text_of(asked(FakeAsyncEngine(), with_params(seed=seed))) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_no_piece_of_text_ends_within_a_character() -> None:
    items = asked(FakeAsyncEngine(lambda request: "世🙂é"))
    pieces = [item.text for item in items if isinstance(item, Tokens)]
    assert [piece for piece in pieces if piece] == ["世", "🙂", "é"]


def test_several_tokens_of_a_step_come_together() -> None:
    items = asked(FakeAsyncEngine(lambda request: "abcd", tokens_per_step=3))
    assert [item.token_ids for item in items if isinstance(item, Tokens)] == [
        byte_tokens("abc"),
        (*byte_tokens("d"), END),
    ]


@pytest.mark.parametrize(("most", "reason"), [(1, "length"), (2, "length"), (3, "stop")])
def test_an_answer_ends_with_its_limit(most: int, reason: str) -> None:
    items = asked(FakeAsyncEngine(lambda request: "ab"), with_params(max_tokens=most))
    assert (len(ids_of(items)), reason_of(items)) == (most, reason)


def test_a_stop_string_ends_the_answer_and_is_not_in_the_text() -> None:
    items = asked(FakeAsyncEngine(lambda request: "say SO, STOP it"), with_params(stop="STOP"))
    assert (text_of(items), reason_of(items)) == ("say SO, ", "stop")


def test_what_only_began_a_stop_string_is_in_the_text() -> None:
    items = asked(FakeAsyncEngine(lambda request: "all ST"), with_params(stop="STOP"))
    assert text_of(items) == "all ST"


def test_control_tokens_are_given_by_id_and_left_out_of_the_text() -> None:
    items = asked(FakeAsyncEngine(lambda request: (7, FIRST_BYTE + 65)))
    assert (ids_of(items), text_of(items)) == ((7, FIRST_BYTE + 65, END), "A")


def test_log_probabilities_come_for_each_token_if_asked_for() -> None:
    items = asked(FakeAsyncEngine(lambda request: "ab"), with_params(logprobs=2))
    scored = [one for item in items if isinstance(item, Tokens) for one in item.logprobs]
    assert [one.token_id for one in scored] == list(ids_of(items))
    assert {len(one.top) for one in scored} == {2}
    end = items[-1]
    assert isinstance(end, Finished)
    assert end.prompt_logprobs is None
    items = asked(FakeAsyncEngine(), with_params(prompt_logprobs=1))
    end = items[-1]
    assert isinstance(end, Finished)
    assert end.prompt_logprobs is not None
    assert len(end.prompt_logprobs) == len(PROMPT)
    assert end.prompt_logprobs[0] is None


def test_a_prompt_that_was_there_is_cached_for_the_same_salt_only() -> None:
    async def body() -> list[int]:
        engine = FakeAsyncEngine()
        found = []
        for number, salt in enumerate(("x", "x", "y")):
            request = replace(ASK, request_id=str(number), cache_salt=salt)
            started = (await answer(engine, request))[0]
            assert isinstance(started, Started)
            found.append(started.cached_tokens)
        return found

    assert run(body) == [0, 8, 0]


def test_requests_beyond_the_places_wait_and_beyond_the_queue_are_refused() -> None:
    async def body() -> None:
        engine = FakeAsyncEngine(places=1, max_queued=2)
        engine.pause()
        tasks = [
            asyncio.create_task(answer(engine, replace(ASK, request_id=name))) for name in "ab"
        ]
        await asyncio.sleep(0.01)
        assert engine.in_work == 2
        with pytest.raises(EngineBusy):
            await answer(engine, replace(ASK, request_id="c"))
        engine.resume()
        assert [reason_of(items) for items in await asyncio.gather(*tasks)] == ["stop", "stop"]
        assert (engine.in_work, engine.most_in_work) == (0, 2)

    run(body)


@pytest.mark.parametrize("places", [0, 1])
def test_an_abort_ends_a_request_that_runs_or_waits(places: int) -> None:
    async def body() -> list[Item]:
        engine = FakeAsyncEngine(places=places)
        engine.pause()
        task = asyncio.create_task(answer(engine))
        await asyncio.sleep(0.01)
        assert engine.abort("a")
        items = await task
        assert not engine.abort("a")
        assert engine.outcomes == {"a": "abort"}
        return items

    assert [type(item) for item in run(body)] == [Finished]


def test_cancelling_whoever_waits_ends_the_request() -> None:
    async def body() -> None:
        engine = FakeAsyncEngine(places=1)
        engine.pause()
        task = asyncio.create_task(answer(engine))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (engine.in_work, engine.outcomes) == (0, {"a": "closed"})
        engine.resume()
        assert reason_of(await answer(engine)) == "stop"

    run(body)


def test_leaving_at_any_moment_leaves_the_place() -> None:
    async def body() -> None:
        engine = FakeAsyncEngine(places=1)
        for moment in range(12):
            task = asyncio.create_task(answer(engine))
            for _ in range(moment):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert reason_of(await answer(engine)) == "stop"

    run(body)


def test_a_deadline_ends_a_request_that_waits() -> None:
    engine = FakeAsyncEngine(places=0)
    with pytest.raises(DeadlineExceeded):
        asked(engine, replace(ASK, timeout_s=0.01))
    assert engine.outcomes == {"a": "failed"}


def test_a_failure_on_demand_comes_at_its_token() -> None:
    engine = FakeAsyncEngine(
        lambda request: "abc",
        failure=lambda request, count: EngineError("broke") if count == 2 else None,
    )

    items: list[Item] = []

    async def body() -> None:
        async for item in engine.generate(ASK):
            items.append(item)  # noqa: PERF401 - what came before the failure is kept

    with pytest.raises(EngineError, match="broke"):
        run(body)
    assert ids_of(items) == byte_tokens("ab")


def test_death_fails_what_is_in_work_and_refuses_what_comes() -> None:
    async def body() -> None:
        engine = FakeAsyncEngine()
        items = engine.generate(ASK)
        await anext(items)
        engine.become("dead")
        with pytest.raises(EngineError, match="died"):
            await anext(items)
        with pytest.raises(EngineUnavailable):
            await answer(engine)
        assert await engine.metrics_text() == ""
        engine.become("ready")
        assert reason_of(await answer(engine)) == "stop"

    run(body)


def test_draining_waits_for_what_is_in_work_and_then_ends_it() -> None:
    async def body() -> None:
        engine = FakeAsyncEngine()
        engine.pause()
        task = asyncio.create_task(answer(engine))
        await asyncio.sleep(0.01)
        assert not await engine.drain(0.01)
        assert reason_of(await task) == "abort"
        assert await engine.drain(0.01)
        with pytest.raises(EngineUnavailable):
            await answer(engine)

    run(body)


@pytest.mark.parametrize("prompt", [(), (FIRST_BYTE + 256,), (-1,), byte_tokens("a" * 8192)])
def test_a_prompt_that_is_none_is_refused(prompt: tuple[int, ...]) -> None:
    with pytest.raises(RequestError):
        asked(FakeAsyncEngine(), replace(ASK, prompt_token_ids=prompt))


def test_a_grammar_is_taken_only_if_its_kind_is() -> None:
    request = with_params(grammar={"kind": "regex", "grammar": "a+"})
    with pytest.raises(RequestError, match="regex"):
        asked(FakeAsyncEngine(), request)
    assert reason_of(asked(FakeAsyncEngine(grammar_kinds=("regex",)), request)) == "stop"
