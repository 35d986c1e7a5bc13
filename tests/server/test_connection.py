"""What may one connection cost?"""

import asyncio
import gc
import logging
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from deepinfer_core.interfaces.protocol import (
    Endpoint,
    EventAnswer,
    HttpAnswer,
    HttpCall,
    JsonAnswer,
)
from deepinfer_core.server.dialect import OPENAI
from deepinfer_core.testing.fake_async_engine import FakeAsyncEngine
from deepinfer_core.testing.served import until

HEAD = b"POST /say HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
GET = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
SHORT = {
    "header_timeout_s": 0.2,
    "body_timeout_s": 0.2,
    "idle_timeout_s": 0.2,
    "write_timeout_s": 0.2,
    "max_header_bytes": 2048,
}


@asynccontextmanager
async def connected(
    client: Any, **options: Any
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    address = urlsplit(str(client.base_url))
    reader, writer = await asyncio.open_connection(address.hostname, address.port, **options)
    try:
        yield reader, writer
    finally:
        writer.close()


async def answered(reader: asyncio.StreamReader) -> bytes:
    """What came back; nothing if the server closed while something was being sent."""
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def exchange(client: Any, *pieces: bytes, pause_s: float = 0.0) -> bytes:
    """Send pieces and read until the server closes."""
    async with connected(client) as (reader, writer):
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(pause_s)
        return await answered(reader)


@pytest.mark.parametrize("sent", [b"", b"G", b"GET / HTTP/1.1\r\nhost: x", b"\r\n\r\n"])
def test_headers_that_do_not_come_end_the_connection(run: Any, serve: Any, sent: bytes) -> None:
    async def body() -> None:
        async with serve(settings=SHORT) as client:
            assert b"408" in await exchange(client, sent)

    run(body)


def test_headers_that_come_byte_by_byte_are_not_waited_for(run: Any, serve: Any) -> None:
    async def body() -> None:
        async with serve(settings=SHORT) as client, connected(client) as (reader, writer):
            answer = asyncio.create_task(answered(reader))
            sent = 0
            for byte in HEAD:
                if answer.done():
                    break
                writer.write(bytes([byte]))
                sent += 1
                await asyncio.sleep(0.01)
            assert (await answer)[:12] in (b"HTTP/1.1 408", b"")
            assert sent < len(HEAD)

    run(body)


def test_a_connection_without_calls_is_closed(run: Any, serve: Any) -> None:
    async def body() -> None:
        async with serve(settings=SHORT) as client:
            # A blank line begins no call, and is no reason to wait longer.
            answer = await exchange(client, GET, b"\r\n", pause_s=0.05)
            assert answer.startswith(b"HTTP/1.1 200")
            assert answer.count(b"HTTP/1.1") == 1

    run(body)


@pytest.mark.parametrize(
    "headers",
    [
        b"x: " + b"a" * 3000,
        b"".join(b"x-%d: a\r\n" % number for number in range(300)),
        b"x: " + b"a" * 300_000,
    ],
)
@pytest.mark.parametrize("ends", [True, False])
def test_large_headers_are_refused(run: Any, serve: Any, headers: bytes, ends: bool) -> None:
    async def body() -> None:
        async with serve(settings=SHORT) as client:
            sent = b"GET /health HTTP/1.1\r\nhost: localhost\r\n" + headers
            answer = await exchange(client, sent + (b"\r\n\r\n" if ends else b""))
            assert answer[:12] in (b"HTTP/1.1 431", b"")

    run(body)


def test_a_long_path_is_a_large_header(run: Any, serve: Any) -> None:
    async def body() -> None:
        async with serve(settings=SHORT) as client:
            sent = b"GET /" + b"a" * 3000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n"
            assert (await exchange(client, sent)).startswith(b"HTTP/1.1 431")

    run(body)


def test_headers_up_to_the_limit_are_read(run: Any, serve: Any) -> None:
    async def body() -> None:
        async with serve(settings=SHORT) as client:
            # GET, the path, host and the connection header count too.
            sent = GET[:-2] + b"x: " + b"a" * 1900 + b"\r\nconnection: close\r\n\r\n"
            assert (await exchange(client, sent)).startswith(b"HTTP/1.1 200")

    run(body)


@pytest.mark.parametrize("announced", [b"content-length: 100", b"transfer-encoding: chunked"])
def test_a_body_that_does_not_come_is_a_408(run: Any, serve: Any, announced: bytes) -> None:
    async def body() -> None:
        async with serve(settings=SHORT) as client:
            answer = await exchange(client, HEAD + announced + b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 408")
            assert b"connection: close" in answer

    run(body)


def test_a_refused_body_is_not_read_and_its_sender_reads_the_refusal(run: Any, serve: Any) -> None:
    async def body() -> None:
        async with serve(settings={"max_body_bytes": 1024}) as client:
            large = b"x" * 4_000_000
            for announced in (b"content-length: %d" % len(large), b"transfer-encoding: chunked"):
                framed = b"%x\r\n" % len(large) + large + b"\r\n0\r\n\r\n"
                sent = large if b"length" in announced else framed
                answer = await exchange(client, HEAD + announced + b"\r\n\r\n" + sent)
                assert answer.startswith(b"HTTP/1.1 413")
                assert b"request_too_large" in answer

    run(body)


def test_who_asks_whether_to_send_is_refused_before_sending(run: Any, serve: Any) -> None:
    async def body() -> None:
        async with serve(keys={"a": "key-of-a"}) as client:
            head = HEAD + b"content-length: 1000\r\nexpect: 100-continue\r\n\r\n"
            answer = await exchange(client, head)
            assert b"100 Continue" not in answer.partition(b"HTTP/1.1 401")[0]
            assert b"HTTP/1.1 401" in answer

    run(body)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET http:// HTTP/1.1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"FOO / HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost : localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\n host: localhost\r\n\r\n",
        HEAD + b"content-length: -1\r\n\r\n",
        HEAD + b"content-length: 1x\r\n\r\n",
        HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\n",
        HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\nxyz\r\n",
        HEAD + b"transfer-encoding: chunked, identity\r\n\r\n{}",
    ],
)
def test_bad_framing_is_refused_and_nothing_of_it_is_run(run: Any, serve: Any, sent: bytes) -> None:
    async def body() -> None:
        engine = FakeAsyncEngine()
        async with serve(engine, settings=SHORT) as client:
            answer = await exchange(client, sent)
            assert answer[9:10] in (b"4", b"")
            assert engine.requests == []
            assert (await client.get("/health")).status_code == 200

    run(body)


def test_a_bad_size_of_a_piece_is_answered_before_the_connection_is_closed(
    run: Any, serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        engine = FakeAsyncEngine()
        async with serve(engine) as client:
            for pieces in ([CHUNKED + b"xyz\r\n"], [CHUNKED + b"2\r\n{}\r\n", b"xyz\r\n"]):
                answer = await exchange(client, *pieces, pause_s=0.02)
                assert answer.startswith(b"HTTP/1.1 400 ")
                assert answer.count(b"HTTP/1.1") == 1
            assert engine.requests == []
            await until(lambda: not client.app._in_work)
            metrics = (await client.get("/metrics")).text
            assert 'http_requests_total{protocol="test.fixed",status="400"} 2.0' in metrics
            assert "http_clients_gone_total 0.0" in metrics

    with caplog.at_level(logging.INFO, logger="deepinfer"):
        run(body)
    logged = [record.msg for record in caplog.records if record.msg["event"] == "call.answered"]
    told = [(one["route"], one["status"], one["error"], one["client_gone"]) for one in logged]
    assert told == [("/say", 400, "bad_framing", False)] * 2


@pytest.mark.parametrize("stream", [b"false", b"true"])
def test_a_client_of_http_1_0_is_sent_a_body_without_framing(
    run: Any, serve: Any, stream: bytes
) -> None:
    async def body() -> None:
        async with serve(FakeAsyncEngine(lambda request: "abc")) as client:
            sent = b'{"stream": %b}' % stream
            head = HEAD.replace(b"1.1", b"1.0") + b"content-length: %d\r\n\r\n" % len(sent)
            headers, _, found = (await exchange(client, head + sent)).partition(b"\r\n\r\n")
            assert headers.startswith(b"HTTP/1.1 200 ")
            assert b"transfer-encoding" not in headers
            assert b"connection: close" in headers
            whole = await client.post("/say", json={"stream": stream == b"true"})
            assert found == whole.content

    run(body)


@pytest.mark.parametrize("framing", [b"content-length: 16", b"transfer-encoding: chunked"])
@pytest.mark.parametrize("pause_s", [0.0, 0.05])
def test_an_offered_upgrade_is_ignored_and_its_body_is_read(
    run: Any, serve: Any, framing: bytes, pause_s: float
) -> None:
    """Java's own client offers HTTP/2 with every first call."""

    async def body() -> None:
        async with serve() as client:
            offer = b"upgrade: h2c\r\nconnection: Upgrade, HTTP2-Settings\r\nhttp2-settings: AA\r\n"
            head, sent = HEAD + offer + framing + b"\r\n\r\n", b'{"max_tokens":2}'
            if b"chunked" in framing:
                sent = b"10\r\n" + sent + b"\r\n0\r\n\r\n"
            last = GET[:-2] + b"connection: close\r\n\r\n"
            pieces = (head, sent, last) if pause_s else (head + sent + last,)
            answer = await exchange(client, *pieces, pause_s=pause_s)
            assert answer.count(b"HTTP/1.1 200") == 2
            assert b'"text"' in answer

    run(body)


def test_a_second_host_is_refused(run: Any, serve: Any) -> None:
    async def body() -> None:
        async with serve() as client:
            sent = GET[:-2] + b"host: evil.example\r\nconnection: close\r\n\r\n"
            assert (await exchange(client, sent)).startswith(b"HTTP/1.1 400")

    run(body)


def test_calls_sent_ahead_are_answered_in_order_up_to_a_number(run: Any, serve: Any) -> None:
    async def body() -> None:
        async with serve() as client:
            last = GET[:-2] + b"connection: close\r\n\r\n"
            answer = await exchange(client, GET * 10 + last)
            assert answer.count(b"HTTP/1.1 200") == 11
            assert (await exchange(client, GET * 5000)).count(b"HTTP/1.1 200") < 5000

    run(body)


def test_a_client_that_goes_away_ends_its_request_also_if_it_sent_others_ahead(
    run: Any, serve: Any
) -> None:
    async def body() -> None:
        engine = FakeAsyncEngine()
        engine.pause()
        async with serve(engine) as client, connected(client) as (_, writer):
            writer.write((HEAD + b"content-length: 2\r\n\r\n{}") * 3)
            await until(lambda: engine.in_work == 1)
            writer.transport.abort()
            await until(lambda: engine.in_work == 0 and not client.app._in_work)
            assert len(engine.requests) == 1

    run(body)


def test_bad_framing_behind_a_call_is_not_taken_for_its_answer(run: Any, serve: Any) -> None:
    async def body() -> None:
        engine = FakeAsyncEngine()
        engine.pause()
        async with serve(engine) as client, connected(client) as (reader, writer):
            writer.write(HEAD + b"content-length: 2\r\n\r\n{}")
            await until(lambda: engine.in_work == 1)
            writer.write(b"no HTTP\r\n\r\n")
            assert await answered(reader) == b""
            await until(lambda: engine.in_work == 0)

    run(body)


def test_a_client_that_sends_and_closes_its_half_ends_its_request(run: Any, serve: Any) -> None:
    async def body() -> None:
        engine = FakeAsyncEngine()
        engine.pause()
        async with serve(engine) as client, connected(client) as (reader, writer):
            writer.write(HEAD + b"content-length: 2\r\n\r\n{}")
            await until(lambda: engine.in_work == 1)
            writer.write_eof()
            await until(lambda: engine.in_work == 0)
            assert await reader.read() == b""

    run(body)


def large_answers(service: Any) -> list[Endpoint]:
    async def events() -> AsyncIterator[bytes]:
        while True:
            yield b"data: " + b"x" * 100_000 + b"\n\n"

    async def stream(call: HttpCall) -> HttpAnswer:
        return EventAnswer(events=events())

    async def whole(call: HttpCall) -> HttpAnswer:
        return JsonAnswer(content=b"x" * 30_000_000)

    return [
        Endpoint(method="GET", path="/stream", handle=stream, dialect=OPENAI),
        Endpoint(method="GET", path="/whole", handle=whole, dialect=OPENAI),
    ]


@pytest.mark.parametrize("path", ["/stream", "/whole"])
@pytest.mark.parametrize("keeps", ["", "connection: close\r\n"])
def test_a_client_that_does_not_read_is_cut_off(
    run: Any, serve: Any, path: str, keeps: str
) -> None:
    async def body() -> None:
        async with serve(make=large_answers, settings=SHORT) as client:
            files = len(os.listdir("/proc/self/fd"))
            address = urlsplit(str(client.base_url))
            with socket.create_connection((address.hostname, address.port)) as peer:
                peer.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n{keeps}\r\n".encode())
                await asyncio.sleep(0.1)
                # The peer's own end is open; the server's must not be.
                await until(lambda: len(os.listdir("/proc/self/fd")) == files + 1)
            await until(lambda: client.app._in_work == set())

    run(body)


def test_events_that_nobody_takes_any_more_are_closed(run: Any, serve: Any) -> None:
    kept: list[AsyncIterator[bytes]] = []
    closed = asyncio.Event()

    async def events() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 1_000_000
        finally:
            closed.set()

    async def stream(call: HttpCall) -> HttpAnswer:
        kept.append(events())  # so that it is not closed by being let go of
        return EventAnswer(events=kept[0])

    async def body() -> None:
        make = [Endpoint(method="GET", path="/x", handle=stream, dialect=OPENAI)]
        async with serve(make=lambda service: make) as client, connected(client) as (_, writer):
            writer.write(GET.replace(b"/health", b"/x"))
            await until(lambda: bool(kept))
            await asyncio.sleep(0.1)  # it is sent as much as can be, and waits
            writer.transport.abort()
            await closed.wait()

    run(body)


def test_more_connections_than_may_be_open_are_closed(run: Any, serve: Any) -> None:
    async def body() -> None:
        async with serve(settings={"max_connections": 2}) as client:
            async with connected(client), connected(client):
                await asyncio.sleep(0.05)
                assert await exchange(client, GET) == b""
            await asyncio.sleep(0.05)
            assert (await client.get("/health")).status_code == 200

    run(body)


def test_a_slow_reader_that_reads_is_waited_for(run: Any, serve: Any) -> None:
    async def body() -> None:
        async with (
            serve(make=large_answers, settings=SHORT) as client,
            connected(client, limit=1 << 16) as (reader, writer),
        ):
            writer.write(b"GET /whole HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            size = pauses = 0
            while piece := await reader.read(1 << 20):
                size += len(piece)
                pauses += 1
                await asyncio.sleep(0.005)
            assert size > 30_000_000
            # All pauses together are longer than what is left unread may be.
            assert pauses * 0.005 > 2 * SHORT["write_timeout_s"]

    run(body)


def test_the_system_watches_whether_a_peer_is_there(run: Any, serve: Any) -> None:
    async def body() -> None:
        async with serve() as client, connected(client) as (_, writer):
            writer.write(GET)
            await asyncio.sleep(0.05)
            found = [one for one in gc.get_objects() if type(one).__name__ == "GuardedProtocol"]
            [peer] = [
                one.transport.get_extra_info("socket")
                for one in found
                if not one.transport.is_closing()
            ]
            assert peer.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60

    run(body)
