"""How does a call pass through the server?"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from deepinfer_core.errors import (
    ConfigError,
    DeadlineExceeded,
    EngineBusy,
    EngineError,
    EngineUnavailable,
    NotFound,
    RequestError,
)
from deepinfer_core.interfaces.protocol import (
    Dialect,
    Endpoint,
    EventAnswer,
    HttpAnswer,
    HttpCall,
    JsonAnswer,
)
from deepinfer_core.server.completions.protocol import CompletionsProtocol
from deepinfer_core.server.dialect import OPENAI
from deepinfer_core.testing.fake_async_engine import FakeAsyncEngine
from deepinfer_core.testing.served import until

KEYS = {"alice": "alice-key-1", "bob": "schlüssel-2"}


def answering(handle: Any, **fields: Any) -> Callable[[Any], Sequence[Endpoint]]:
    named = {"method": "POST", "path": "/x", "dialect": OPENAI, **fields}
    return lambda service: [Endpoint(handle=handle, **named)]


def test_a_whole_answer_carries_the_text_of_the_engine(run: Any, serve: Any) -> None:
    async def body() -> None:
        async with serve(FakeAsyncEngine(lambda request: "héllo")) as client:
            answer = await client.post("/say", json={})
            assert (answer.status_code, answer.json()) == (200, {"text": "héllo", "key": ""})
            assert answer.headers["content-type"] == "application/json"

    run(body)


def test_a_stream_carries_each_piece_and_ends(run: Any, serve: Any) -> None:
    async def body() -> None:
        async with serve(FakeAsyncEngine(lambda request: "abc")) as client:
            answer = await client.post("/say", json={"stream": True})
            assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert answer.headers["x-accel-buffering"] == "no"
            pieces = [line[6:] for line in answer.text.split("\n\n") if line]
            assert pieces == ['"a"', '"b"', '"c"', '""', "[DONE]"]

    run(body)


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (RequestError("bad"), 400, "invalid_request_error", "request_error"),
        (NotFound("no", code="model_not_found"), 404, "invalid_request_error", "model_not_found"),
        (EngineBusy("full"), 429, "rate_limit_error", "engine_busy"),
        (EngineUnavailable("loads"), 503, "service_unavailable_error", "engine_unavailable"),
        (DeadlineExceeded("over"), 503, "service_unavailable_error", "deadline_exceeded"),
        (EngineError("secret"), 500, "server_error", "internal_error"),
        (ConfigError("secret"), 500, "server_error", "internal_error"),
        (KeyError("secret"), 500, "server_error", "internal_error"),
        (asyncio.CancelledError(), 500, "server_error", "internal_error"),
    ],
)
@pytest.mark.parametrize("streams", [False, True])
def test_what_a_protocol_raises_becomes_a_status(
    run: Any, serve: Any, error: Any, status: int, kind: str, code: str, streams: bool
) -> None:
    async def events() -> AsyncIterator[bytes]:
        raise error
        yield b""

    async def handle(call: HttpCall) -> HttpAnswer:
        if streams:
            return EventAnswer(events=events())
        raise error

    async def body() -> None:
        async with serve(make=answering(handle)) as client:
            answer = await client.post("/x", json={})
            shown = answer.json()["error"]
            assert (answer.status_code, shown["type"], shown["code"]) == (status, kind, code)
            assert ("retry-after" in answer.headers) == (status in (429, 503))
            assert "secret" not in answer.text

    run(body)


def test_an_error_behind_the_first_event_is_the_last_event(run: Any, serve: Any) -> None:
    async def events() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        raise RequestError("too late")

    async def handle(call: HttpCall) -> HttpAnswer:
        return EventAnswer(events=events())

    async def body() -> None:
        async with serve(make=answering(handle)) as client:
            answer = await client.post("/x", json={})
            first, last = answer.text.strip().split("\n\n")
            assert (answer.status_code, first) == (200, "data: 1")
            assert json.loads(last.removeprefix("data: "))["error"]["message"] == "too late"

    run(body)


def test_a_stream_without_events_is_an_empty_one(run: Any, serve: Any) -> None:
    async def events() -> AsyncIterator[bytes]:
        for nothing in ():
            yield nothing

    async def handle(call: HttpCall) -> HttpAnswer:
        return EventAnswer(events=events())

    async def body() -> None:
        async with serve(make=answering(handle)) as client:
            answer = await client.post("/x", json={})
            assert (answer.status_code, answer.text) == (200, "")

    run(body)


def test_an_endpoint_gets_path_values_headers_and_aliases(run: Any, serve: Any) -> None:
    async def handle(call: HttpCall) -> HttpAnswer:
        content = json.dumps({**call.path_values, "agent": call.headers["user-agent"]}).encode()
        return JsonAnswer(content=content, status=203, headers={"x-more": "yes"})

    make = answering(handle, method="GET", path="/v1/cards/{card}", aliases=("/cards/{card}",))

    async def body() -> None:
        async with serve(make=make) as client:
            for path in ("/v1/cards/a%20b", "/cards/a%20b"):
                answer = await client.get(path, headers={"user-agent": "t"})
                assert answer.json() == {"card": "a b", "agent": "t"}
                assert (answer.status_code, answer.headers["x-more"]) == (203, "yes")
            assert (await client.get("/cards/a/b")).status_code == 404
            assert (await client.head("/cards/a")).status_code == 203

    run(body)


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [("GET", "/nothing", 404, None), ("GET", "/say", 405, "POST"), ("PUT", "/health", 405, "GET")],
)
def test_a_path_or_method_that_is_not_there_is_refused(
    run: Any, serve: Any, method: str, path: str, status: int, allow: str | None
) -> None:
    async def body() -> None:
        async with serve() as client:
            answer = await client.request(method, path)
            assert (answer.status_code, answer.headers.get("allow")) == (status, allow)

    run(body)


def test_a_dialect_claims_paths_whatever_is_wrong_with_a_call(run: Any, serve: Any) -> None:
    other = Dialect(
        error_body=lambda error, status, name: f'"{status} {name}"'.encode(),
        error_event=lambda error, status, name: b"",
        prefixes=("/other/",),
    )

    async def handle(call: HttpCall) -> HttpAnswer:
        raise RequestError("bad")

    make = answering(handle, path="/other/x", dialect=other)

    async def body() -> None:
        async with serve(make=make, keys=KEYS) as client:
            headers = {"x-request-id": "r1", "x-api-key": KEYS["alice"]}
            assert (await client.post("/other/x", json={}, headers=headers)).text == '"400 r1"'
            assert (await client.post("/other/y", json={}, headers=headers)).text == '"404 r1"'
            refused = await client.post("/other/x", json={}, headers={"x-request-id": "r2"})
            assert refused.text == '"401 r2"'
            assert "error" in (await client.post("/x", json={}, headers=headers)).json()

    run(body)


def test_a_body_of_a_call_that_takes_none_means_nothing(run: Any, serve: Any) -> None:
    async def body() -> None:
        async with serve() as client:
            for size in (1, 1_000_000):
                answer = await client.request("GET", "/health", content=b"x" * size)
                assert (answer.status_code, answer.json()) == (200, {"status": "ok"})

    run(body)


def test_an_answer_repeats_the_request_id_or_has_a_new_one(run: Any, serve: Any) -> None:
    async def body() -> None:
        async with serve() as client:
            for given in ("a.B-3_", "x" * 128):
                answer = await client.get("/health", headers={"x-request-id": given})
                assert answer.headers["x-request-id"] == answer.headers["request-id"] == given
            for given in ("", "a b", "x" * 129, "é"):
                answer = await client.get("/health", headers={"x-request-id": given.encode()})
                assert answer.headers["x-request-id"].startswith("req-")

    run(body)


def test_two_calls_in_work_never_have_one_id(run: Any, serve: Any) -> None:
    async def body() -> None:
        engine = FakeAsyncEngine()
        engine.pause()
        async with serve(engine) as client:
            headers = {"x-request-id": "same"}
            calls = [
                asyncio.create_task(client.post("/say", json={}, headers=headers)) for _ in "ab"
            ]
            await until(lambda: engine.in_work == 2)
            engine.resume()
            first, second = [
                answer.headers["x-request-id"] for answer in await asyncio.gather(*calls)
            ]
            assert {first, second} > {"same"}

    run(body)


def test_the_probes_tell_three_things(run: Any, serve: Any) -> None:
    async def body() -> None:
        engine = FakeAsyncEngine()
        async with serve(engine, progress=lambda: {"phases": [1]}) as client:
            for state, health, ready in [
                ("loading", 200, 503),
                ("ready", 200, 200),
                ("draining", 200, 503),
                ("dead", 503, 503),
            ]:
                engine.become(state)
                assert (await client.get("/health")).status_code == health
                answer = await client.get("/ready")
                assert (answer.status_code, answer.json()) == (ready, {"status": state})
                answer = await client.get("/progress")
                assert answer.json() == {
                    "status": state,
                    "in_work": 0,
                    "waiting": 0,
                    "loading": {"phases": [1]},
                }

    run(body)


def test_metrics_are_those_of_the_server_and_of_the_engine(run: Any, serve: Any) -> None:
    async def body() -> None:
        engine = FakeAsyncEngine()
        async with serve(engine) as client:
            await client.post("/say", json={})
            await client.get("/nothing")
            text = (await client.get("/metrics")).text
            assert 'http_requests_total{protocol="test.fixed",status="200"} 1.0' in text
            assert 'http_requests_total{protocol="none",status="404"} 1.0' in text
            assert "deepinfer_http_requests_in_work 1.0" in text
            assert "deepinfer_requests_running 0.0" in text
            engine.become("dead")
            text = (await client.get("/metrics")).text
            assert "deepinfer_http_requests_in_work" in text
            assert "deepinfer_requests_running" not in text

    run(body)


MEBIBYTE = 1 << 20


def test_large_bodies_have_a_limit_together_and_small_ones_have_none(run: Any, serve: Any) -> None:
    may_end = asyncio.Event()
    begun: list[int] = []

    async def handle(call: HttpCall) -> HttpAnswer:
        begun.append(len(call.body["a"]))
        await may_end.wait()
        return JsonAnswer(content=b"{}")

    async def body() -> None:
        settings = {"max_bodies_bytes": MEBIBYTE}
        async with serve(make=answering(handle), settings=settings) as client:

            def call(size_bytes: int) -> asyncio.Task[Any]:
                text = b'{"a":"%b"}' % (b"x" * (size_bytes - len(b'{"a":""}')))
                headers = {"content-type": "application/json"}
                return asyncio.create_task(client.post("/x", content=text, headers=headers))

            half = call(MEBIBYTE // 2)
            await until(lambda: len(begun) == 1)
            refused = await call(MEBIBYTE // 2 + 1)
            assert refused.status_code == 429
            assert refused.json()["error"]["code"] == "too_many_large_bodies"
            assert int(refused.headers["retry-after"]) > 0
            other_half = call(MEBIBYTE // 2)
            small = [call((256 << 10) - 1) for _ in range(3)]
            await until(lambda: len(begun) == 5)
            assert (await call(256 << 10)).status_code == 429
            may_end.set()
            for one in (half, other_half, *small):
                assert (await one).status_code == 200
            assert (await call(MEBIBYTE)).status_code == 200
            assert (await call(MEBIBYTE + 1)).status_code == 429

    run(body)


def test_two_protocols_cannot_have_one_path() -> None:
    from deepinfer_core.config.server import ServerSettings
    from deepinfer_core.testing.served import app_of

    async def build() -> None:
        make = answering(lambda call: None, method="GET", path="/health")
        app_of(make, engine=FakeAsyncEngine(), settings=ServerSettings())

    with pytest.raises(ConfigError, match=r"server and test\.fixed both serve GET /health"):
        asyncio.run(build())


def test_the_description_lists_every_endpoint(run: Any, serve: Any) -> None:
    async def body() -> None:
        async with serve(keys=KEYS) as client:
            headers = {"x-api-key": KEYS["alice"]}
            document = (await client.get("/openapi.json", headers=headers)).json()
            assert document["openapi"] == "3.1.0"
            assert set(document["paths"]) == {
                *("/health", "/ready", "/progress", "/metrics", "/openapi.json", "/say")
            }
            body = document["paths"]["/say"]["post"]["requestBody"]["content"]
            assert body["application/json"]["schema"]["properties"] == {
                "stream": {"type": "boolean"}
            }
            assert document["security"] == [{"key": []}]

    run(body)


def test_a_key_that_is_full_can_still_end_its_calls(run: Any, serve: Any) -> None:
    async def body() -> None:
        engine = FakeAsyncEngine()
        engine.pause()
        make = CompletionsProtocol().endpoints
        async with serve(engine, make, settings={"max_per_key": 1}) as client:
            headers = {"x-request-id": "mine"}
            whole = asyncio.create_task(
                client.post("/v1/completions", json={"prompt": "a"}, headers=headers)
            )
            await until(lambda: engine.in_work == 1)
            refused = await client.post("/v1/completions", json={"prompt": "a"})
            assert refused.status_code == 429
            assert (await client.post("/tokenize", json={"prompt": "a"})).status_code == 200
            assert (await client.post("/detokenize", json={"tokens": [65]})).status_code == 200
            ended = await client.post("/abort", json={"request_id": "mine"})
            assert (ended.status_code, ended.json()) == (200, {"aborted": True})
            engine.resume()
            assert (await whole).json()["choices"][0]["finish_reason"] == "abort"

    run(body)


@pytest.mark.parametrize(
    ("path", "named", "hint"),
    [
        ("/v1/nothing", "/v1/nothing", "GET /openapi.json"),
        ("/v1/v1/models", "/v1/v1/models", "leave /v1 out of the base URL"),
        ("/" + "long" * 500, "/longlong", "GET /openapi.json"),
    ],
)
def test_a_path_that_is_not_there_is_named(
    run: Any, serve: Any, path: str, named: str, hint: str
) -> None:
    async def body() -> None:
        async with serve() as client:
            message = (await client.get(path)).json()["error"]["message"]
            assert named in message
            assert hint in message
            assert len(message) < 300

    run(body)
