"""What happens to an answer that waits, whose client goes away, or that takes too long?"""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from deepinfer_core.interfaces.protocol import Dialect, Endpoint, EventAnswer, HttpAnswer, HttpCall
from deepinfer_core.server.dialect import OPENAI
from deepinfer_core.testing.fake_async_engine import FakeAsyncEngine
from deepinfer_core.testing.served import until

SOON_S = 1.0
"""Within so long the work of a client that went away must end."""


async def gone_after(client: Any, engine: FakeAsyncEngine, body: dict[str, Any]) -> float:
    """Ask, go away when the engine works, and tell how long the engine worked on."""
    call = asyncio.create_task(client.post("/say", json=body))
    await until(lambda: engine.in_work == 1)
    call.cancel()
    left = time.monotonic()
    await until(lambda: engine.in_work == 0)
    return time.monotonic() - left


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("waits", ["in the engine", "while it is answered", "for its turn"])
def test_a_client_that_goes_away_ends_its_request(
    run: Any, serve: Any, stream: bool, waits: str
) -> None:
    async def body() -> None:
        places = 0 if waits == "for its turn" else 1
        engine = FakeAsyncEngine(lambda request: "x" * 4000, step_s=0.001, places=places)
        if waits == "in the engine":
            engine.pause()
        async with serve(engine) as client:
            assert await gone_after(client, engine, {"stream": stream}) < SOON_S
            assert set(engine.outcomes.values()) == {"closed"}
            text = (await client.get("/metrics")).text
            assert "deepinfer_http_clients_gone_total 1.0" in text
            assert 'http_requests_total{protocol="test.fixed",status="499"} 1.0' in text

    run(body)


def test_a_handler_that_is_busy_with_something_else_is_cancelled_too(run: Any, serve: Any) -> None:
    ended = asyncio.Event()

    async def handle(call: HttpCall) -> HttpAnswer:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        raise AssertionError

    async def body() -> None:
        make = [Endpoint(method="GET", path="/x", handle=handle, dialect=OPENAI)]
        async with serve(make=lambda service: make) as client:
            call = asyncio.create_task(client.get("/x"))
            await asyncio.sleep(0.05)
            call.cancel()
            async with asyncio.timeout(SOON_S):
                await ended.wait()

    run(body)


def test_a_stream_that_waits_gives_signs_of_life_and_its_status_with_the_first(
    run: Any, serve: Any
) -> None:
    async def body() -> None:
        engine = FakeAsyncEngine(lambda request: "a")
        engine.pause()
        async with (
            serve(engine, settings={"keep_alive_s": 0.02}) as client,
            client.stream("POST", "/say", json={"stream": True}) as answer,
        ):
            assert answer.status_code == 200
            lines = answer.aiter_lines()
            # Blank lines stand between the comments.
            signs = [await anext(lines) for _ in range(6)]
            assert signs == [": keep-alive", ""] * 3
            engine.resume()
            rest = [line async for line in lines if line not in ("", ": keep-alive")]
            assert rest == ['data: "a"', 'data: ""', "data: [DONE]"]

    run(body)


def test_a_sign_of_life_is_in_the_words_of_the_dialect(run: Any, serve: Any) -> None:
    dialect = Dialect(
        error_body=OPENAI.error_body, error_event=OPENAI.error_event, keep_alive=b"event: ping\n\n"
    )

    async def events() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        await asyncio.sleep(0.1)
        yield b"data: 2\n\n"

    async def handle(call: HttpCall) -> HttpAnswer:
        return EventAnswer(events=events())

    async def body() -> None:
        make = [Endpoint(method="POST", path="/x", handle=handle, dialect=dialect)]
        async with serve(make=lambda service: make, settings={"keep_alive_s": 0.03}) as client:
            parts = (await client.post("/x", json={})).text.split("\n\n")
            assert parts[0] == "data: 1"
            assert parts[1] == "event: ping"
            assert parts[-2] == "data: 2"

    run(body)


def test_what_fails_before_the_first_event_still_has_a_status(run: Any, serve: Any) -> None:
    async def body() -> None:
        engine = FakeAsyncEngine(max_queued=0)
        async with serve(engine) as client:
            answer = await client.post("/say", json={"stream": True})
            assert (answer.status_code, answer.json()["error"]["code"]) == (429, "engine_busy")

    run(body)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_takes_too_long_fails(run: Any, serve: Any, stream: bool) -> None:
    async def body() -> None:
        engine = FakeAsyncEngine(lambda request: "ab")
        engine.pause()
        async with serve(engine, settings={"request_timeout_s": 0.1}) as client:
            answer = await client.post("/say", json={"stream": stream})
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "request_timeout")
            assert (engine.in_work, list(engine.outcomes.values())) == (0, ["closed"])

    run(body)


def test_a_stream_that_takes_too_long_ends_with_an_event_that_says_so(run: Any, serve: Any) -> None:
    async def body() -> None:
        engine = FakeAsyncEngine(lambda request: "x" * 4000, step_s=0.01)
        async with serve(engine, settings={"request_timeout_s": 0.3}) as client:
            answer = await client.post("/say", json={"stream": True})
            assert answer.status_code == 200
            assert "request_timeout" in answer.text.strip().split("\n\n")[-1]
            assert engine.in_work == 0

    run(body)


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_is_not_started_in_time_is_refused(
    run: Any, serve: Any, stream: bool
) -> None:
    async def body() -> None:
        engine = FakeAsyncEngine(places=0)
        async with serve(engine, settings={"queue_timeout_s": 0.1}) as client:
            answer = await client.post("/say", json={"stream": stream})
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) >= 1
            assert "not started within 0.1 s" in answer.json()["error"]["message"]

    run(body)


def test_many_clients_that_go_away_leave_nothing_behind(run: Any, serve: Any) -> None:
    async def body() -> None:
        engine = FakeAsyncEngine(lambda request: "x" * 4000, step_s=0.001, places=8)
        async with serve(engine, running=8) as client:
            calls = [
                asyncio.create_task(client.post("/say", json={"stream": number % 2 == 0}))
                for number in range(40)
            ]
            await until(lambda: client.app.engine.in_work == 40)
            for number, call in enumerate(calls):
                call.cancel()
                if number % 10 == 0:
                    await asyncio.sleep(0.01)
            await until(lambda: client.app.engine.in_work == 0)
            assert engine.in_work == 0
            assert (await client.post("/say", json={"max_tokens": 1})).status_code == 200

    run(body)
