"""What does the log say of a call when it has ended?"""

import asyncio
import logging
from typing import Any

import pytest
from deepinfer_core.interfaces.protocol import Endpoint, HttpAnswer, HttpCall
from deepinfer_core.server.call_record import CallRecord
from deepinfer_core.server.dialect import OPENAI
from deepinfer_core.testing.fake_async_engine import FakeAsyncEngine
from deepinfer_core.testing.served import until

KEYS = {"alice": "alice-key-1"}


def test_the_access_log_has_numbers_and_no_words_of_the_client(
    run: Any, serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        async with serve(FakeAsyncEngine(lambda request: "answer"), keys=KEYS) as client:
            headers = {"x-api-key": KEYS["alice"], "x-request-id": "r1"}
            await client.post(
                "/say?secret=1", json={"secret": 1, "user": "secret"}, headers=headers
            )
            await client.get("/secret", headers=headers)

    with caplog.at_level(logging.INFO, logger="deepinfer"):
        run(body)
    logged = [record.msg for record in caplog.records if record.msg["event"] == "call.answered"]
    assert [(one["route"], one["status"]) for one in logged] == [("/say", 200), ("", 404)]
    first = logged[0]
    assert (first["request_id"], first["key"], first["protocol"]) == ("r1", "alice", "test.fixed")
    assert (first["completion_tokens"], first["stream"]) == (len("answer") + 1, False)
    assert first["total_ms"] > 0
    assert "secret" not in str(logged)
    assert KEYS["alice"] not in str(logged)


def test_who_only_looks_how_the_server_is_is_logged_for_debugging_unless_refused(
    run: Any, serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        async with serve(FakeAsyncEngine(), keys=KEYS) as client:
            headers = {"x-api-key": KEYS["alice"]}
            for path in ("/health", "/ready", "/progress", "/metrics", "/openapi.json"):
                assert (await client.get(path, headers=headers)).status_code == 200
            assert (await client.get("/metrics")).status_code == 401

    with caplog.at_level(logging.DEBUG, logger="deepinfer"):
        run(body)
    levels = [
        (record.msg["status"], record.levelname)
        for record in caplog.records
        if record.msg["event"] == "call.answered"
    ]
    assert levels == [*[(200, "DEBUG")] * 5, (401, "INFO")]


@pytest.mark.parametrize(
    ("owner", "status", "is_look"),
    [
        ("server", 200, True),
        ("server", 503, True),
        ("server", 404, False),
        ("page", 304, True),
        ("core.completions", 200, False),
        ("core.completions", 503, False),
        ("none", 200, False),
    ],
)
def test_a_look_is_a_call_of_the_server_s_own_that_was_answered(
    owner: str, status: int, is_look: bool
) -> None:
    assert CallRecord(request_id="a", owner=owner, status=status).is_look is is_look


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("who", ["client", "deadline", "operator", "shutdown", ""])
def test_the_access_log_says_who_ended_an_answer(
    run: Any, serve: Any, caplog: pytest.LogCaptureFixture, who: str, stream: bool
) -> None:
    async def body() -> None:
        engine = FakeAsyncEngine(lambda request: "x" * (9 if who == "" else 4000), step_s=0.001)
        limits = {"request_timeout_s": 0.1} if who == "deadline" else {}
        async with serve(engine, settings=limits) as client:
            call = asyncio.create_task(client.post("/say", json={"stream": stream}))
            await until(lambda: engine.in_work == 1)
            if who == "client":
                call.cancel()
            elif who == "operator":
                [request] = engine.requests
                assert client.app.engine.abort(request.request_id)
            elif who == "shutdown":
                await client.app.engine.drain(0.0)
            await asyncio.wait({call})
            await until(lambda: engine.in_work == 0)

    with caplog.at_level(logging.INFO, logger="deepinfer"):
        run(body)
    [logged] = [record.msg for record in caplog.records if record.msg["event"] == "call.answered"]
    assert logged["ended_by"] == who


def test_a_failure_nobody_foresaw_is_logged_without_its_text(
    run: Any, serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    error = KeyError("secret")

    async def handle(call: HttpCall) -> HttpAnswer:
        raise error  # the log shows this line, as it is one of the program

    make = [Endpoint(method="POST", path="/x", handle=handle, dialect=OPENAI)]

    async def body() -> None:
        async with serve(make=lambda service: make) as client:
            await client.post("/x", json={})

    with caplog.at_level(logging.INFO, logger="deepinfer"):
        run(body)
    [failed] = [record.msg for record in caplog.records if record.msg["event"] == "call.failed"]
    assert failed["exception"] == "KeyError"
    assert "in handle" in failed["stack"]
    assert "secret" not in str([record.msg for record in caplog.records])
