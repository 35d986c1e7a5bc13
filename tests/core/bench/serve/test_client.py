"""Does a client read every form of response, and tell every failure by its name?"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("httptools", reason="pip install 'deepinfer-core[bench]' runs these")
pytest.importorskip("msgspec", reason="pip install 'deepinfer-core[bench]' runs these")

from deepinfer_core.bench.serve.client import Client, parse_target
from deepinfer_core.bench.serve.exchange import Exchange
from deepinfer_core.errors import ConfigError, EngineError
from deepinfer_core.testing.scripted_service import Asked, Reply, ScriptedService, streamed_answer

BODY = {"prompt": "a b", "max_tokens": 3}
EVENTS = (b'data: {"choices": [{"text": "a"}]}\n', b"\ndata: [DONE]\n", b"\n")


def use(url: str, work: Callable[[Client], Awaitable[Any]], timeout_s: float = 60.0) -> Any:
    """Let a client work in an event loop of its own, and close it."""

    async def run() -> Any:
        client = Client(parse_target(url, "k"), timeout_s=timeout_s)
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(run())


def ask(
    answer: Callable[[Asked], Reply], times: int = 1, timeout_s: float = 60.0
) -> tuple[list[Exchange], list[Asked]]:
    """So many requests, one after the other, of one client."""
    found = [Exchange(kind="", due_s=0.0) for _ in range(times)]

    async def work(client: Client) -> None:
        for one in found:
            await client.ask("/completions", BODY, one)

    with ScriptedService(answer) as service:
        use(service.url, work, timeout_s)
        return found, service.asked


def test_a_request_carries_key_body_and_path() -> None:
    [found], [asked] = ask(streamed_answer)
    assert (found.failure, found.answer, found.completion_tokens) == ("", " w0 w1 w2", 3)
    assert (asked.method, asked.path, asked.body) == ("POST", "/v1/completions", BODY)
    assert asked.headers["authorization"] == "Bearer k"
    assert asked.headers["content-type"] == "application/json"


def test_a_connection_is_used_again() -> None:
    _, asked = ask(streamed_answer, times=3)
    assert [one.connection for one in asked] == [1, 1, 1]


@pytest.mark.parametrize("end", ["chunked", "length", "close"])
def test_every_framing_of_a_body_is_read(end: str) -> None:
    reply = Reply(pieces=EVENTS, end=end)  # type: ignore[arg-type]
    found, asked = ask(lambda _: reply, times=2)
    assert [(one.failure, one.answer) for one in found] == [("", "a")] * 2
    assert [one.connection for one in asked] == ([1, 2] if end == "close" else [1, 1])


def test_a_response_that_breaks_off_is_cut() -> None:
    [found], _ = ask(lambda _: Reply(pieces=EVENTS[:1], end="cut"))
    assert (found.failure, found.detail) == ("cut", "the server closed it")


def test_a_response_without_a_length_may_follow_one_with_a_length() -> None:
    replies = iter([Reply(pieces=EVENTS, end="length"), Reply(pieces=EVENTS, end="close")])
    found, asked = ask(lambda _: next(replies), times=2)
    assert [one.failure for one in found] == ["", ""]
    assert [one.connection for one in asked] == [1, 1]


def test_a_service_that_says_no_more_times_out() -> None:
    [found], _ = ask(lambda _: Reply(pieces=EVENTS[:1], end="hang"), timeout_s=0.2)
    assert (found.failure, found.detail) == ("timeout", "no end within 0.2 s")


def test_a_refusal_says_how_long_to_stay_away() -> None:
    reply = Reply(status=429, headers={"retry-after": "7"}, pieces=(b"busy",), end="length")
    [found], _ = ask(lambda _: reply)
    assert (found.failure, found.detail, found.retry_after_s) == ("http 429", "busy", 7.0)


def test_a_port_where_nobody_listens_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    found = Exchange(kind="", due_s=0.0)
    use(url, lambda client: client.ask("/completions", BODY, found))
    assert found.failure == "connect"
    with pytest.raises(EngineError, match=r"asked http.* for /models, found"):
        use(url, lambda client: client.get("/models"))


def test_what_is_no_http_is_a_failure_and_no_crash() -> None:
    [found], _ = ask(lambda _: Reply(status=-1, pieces=(b"x",)))
    assert found.failure == "connect"
    assert found.detail.startswith("the response is no HTTP")


@pytest.mark.parametrize(("status", "hint"), [(401, "it needs a key"), (503, "is it ready?")])
def test_a_page_that_is_refused_is_an_error_with_its_status(status: int, hint: str) -> None:
    with (
        ScriptedService(lambda _: Reply(status=status, pieces=(b"{}",))) as service,
        pytest.raises(EngineError, match=f"found status {status}") as caught,
    ):
        use(service.url, lambda client: client.get("/models"))
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize(
    ("url", "host", "port", "path"),
    [
        ("http://h:1", "h", 1, "/v1"),
        ("http://h:1/", "h", 1, "/v1"),
        ("http://h/v1", "h", 80, "/v1"),
        ("https://h/api/v2/", "h", 443, "/api/v2"),
        ("http://[::1]:8", "::1", 8, "/v1"),
    ],
)
def test_addresses_have_a_host_a_port_and_a_path(url: str, host: str, port: int, path: str) -> None:
    found = parse_target(url)
    assert (found.host, found.port, found.path) == (host, port, path)


@pytest.mark.parametrize("url", ["", "h:8000", "ftp://h", "http://", "http://h:no", "http://[::1"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="the address is"):
        parse_target(url)


@pytest.mark.parametrize("key", ["a\r\nx: y", "ä"])
def test_a_key_that_would_break_the_headers_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match="the key holds"):
        parse_target("http://h", key)


def test_a_key_is_not_shown() -> None:
    assert "secret" not in repr(parse_target("http://h", "secret"))
