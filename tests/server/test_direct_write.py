"""Pieces that are written beside the iterator of a stream."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit

from deepinfer_core.interfaces.protocol import (
    DirectWrite,
    Endpoint,
    EventAnswer,
    HttpAnswer,
    HttpCall,
)
from deepinfer_core.server.dialect import OPENAI
from deepinfer_core.server.direct_write import ConnectionWrite, Outbox
from deepinfer_core.testing.served import until

MANY = 1000
"""More pieces of 50,000 bytes than the system takes for one connection, and 64 KiB."""

SIZES = (2, 15, 16, 1023, 1024, 1025, 4096)
"""Around those of one digit, and those whose heads are made in advance."""


SECOND = b"abababababababab" + b"c" * 8


class Call:
    """What is used of uvicorn's record of a call."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.scope: dict[str, Any] = {"state": {}}
        self.transport = self
        self.failure = failure
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        if self.failure is not None:
            raise self.failure
        self.written.append(data)


class Stream:
    """One answer whose items a test gives, and what the shell gave it."""

    def __init__(self) -> None:
        self.items: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.given: list[DirectWrite] = []
        self.is_closed = False

    @property
    def direct(self) -> DirectWrite:
        [given] = self.given
        return given

    async def events(self) -> AsyncIterator[bytes]:
        try:
            while (item := await self.items.get()) is not None:
                yield item
        finally:
            self.is_closed = True

    def endpoints(self, service: Any) -> list[Endpoint]:
        async def handle(call: HttpCall) -> HttpAnswer:
            return EventAnswer(events=self.events(), begin=self.given.append)

        return [Endpoint(method="POST", path="/x", handle=handle, dialect=OPENAI)]


async def asked(client: Any, lines: list[str]) -> None:
    async with client.stream("POST", "/x", json={}) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line:
                lines.append(line)  # noqa: PERF401 - a test looks at what came so far


def running(serve: Any, settings: dict[str, Any], body: Callable[[Stream, Any, Any], Any]) -> Any:
    """Do something while a client reads a stream; what it read."""

    async def run() -> list[str]:
        stream, lines = Stream(), list[str]()
        async with serve(make=stream.endpoints, settings=settings) as client:
            reading = asyncio.create_task(asked(client, lines))
            await until(lambda: bool(stream.given))
            await body(stream, client, lines)
            stream.items.put_nowait(None)
            await reading
            assert not stream.direct.is_free  # the response is over
        return lines

    return run


def test_pieces_stand_where_they_were_written_among_the_items(run: Any, serve: Any) -> None:
    async def body(stream: Stream, client: Any, lines: list[str]) -> None:
        assert not stream.direct.is_free  # the status comes first
        stream.items.put_nowait(b"data: 1\n\n")
        await until(lambda: stream.direct.is_free)
        for size in SIZES:
            stream.direct.write(b":" * (size - 1) + b"\n")
        stream.items.put_nowait(b"data: 2\n\n")
        await until(lambda: lines[-1:] == ["data: 2"])
        stream.direct.write(b"data: 3\n\n")

    lines = run(running(serve, {}, body))
    assert lines == ["data: 1", *[":" * (size - 1) for size in SIZES], "data: 2", "data: 3"]


def test_pieces_of_one_turn_of_the_loop_are_one_write(run: Any) -> None:
    async def body() -> None:
        outbox = Outbox()
        calls = [Call(), Call()]
        first, second = [ConnectionWrite(one, outbox) for one in calls]  # type: ignore[arg-type]
        for text in (b"ab", b"c"):
            first.write(text)
            second.write(text * 8)
        assert [one.written for one in calls] == [[], []]
        await asyncio.sleep(0)
        assert [one.written for one in calls] == [[b"3\r\nabc\r\n"], [b"18\r\n" + SECOND + b"\r\n"]]
        first.write(b"d")
        first.flush()  # something else is to be written behind it
        assert calls[0].written[1:] == [b"1\r\nd\r\n"]
        await asyncio.sleep(0)
        assert len(calls[0].written) == 2

    run(body)


def test_nothing_is_written_behind_the_end_of_a_response(run: Any, serve: Any) -> None:
    async def body(stream: Stream, client: Any, lines: list[str]) -> None:
        stream.items.put_nowait(b"data: 1\n\n")
        await until(lambda: stream.direct.is_free)
        stream.items.put_nowait(None)
        stream.direct.write(b"data: 2\n\n")  # while the end is on its way

    assert run(running(serve, {}, body)) == ["data: 1", "data: 2"]


def test_a_connection_that_fails_takes_nothing_from_the_others(run: Any) -> None:
    async def body() -> None:
        outbox = Outbox()
        calls = [Call(RuntimeError("the handler is closed")), Call()]
        for one in calls:
            ConnectionWrite(one, outbox).write(b"ab")  # type: ignore[arg-type]
        await asyncio.sleep(0)
        assert calls[1].written == [b"2\r\nab\r\n"]

    run(body)


def test_no_sign_of_life_is_given_while_pieces_are_written(run: Any, serve: Any) -> None:
    async def body(stream: Stream, client: Any, lines: list[str]) -> None:
        stream.items.put_nowait(b"data: 1\n\n")
        await until(lambda: stream.direct.is_free)
        for _ in range(20):
            await asyncio.sleep(0.02)
            stream.direct.write(b"data: x\n\n")
        await asyncio.sleep(0.3)

    lines = run(running(serve, {"keep_alive_s": 0.2}, body))
    assert lines[:21] == ["data: 1", *["data: x"] * 20]
    assert lines[21:] == [": keep-alive"]


def test_a_client_that_does_not_read_is_written_nothing_directly(run: Any, serve: Any) -> None:
    async def body() -> None:
        stream = Stream()
        async with serve(make=stream.endpoints) as client:
            address = urlsplit(str(client.base_url))
            head = b"POST /x HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            with socket.create_connection((address.hostname, address.port)) as peer:
                peer.sendall(head + b"content-length: 2\r\n\r\n{}")
                await until(lambda: bool(stream.given))
                stream.items.put_nowait(b"data: 1\n\n")
                await until(lambda: stream.direct.is_free)
                written = 0
                while stream.direct.is_free and written < MANY:
                    stream.direct.write(b"x" * 50_000)
                    written += 1
                    await asyncio.sleep(0)
                assert 0 < written < MANY
                peer.setblocking(False)
                while not stream.direct.is_free:
                    try:
                        peer.recv(1 << 20)
                    except BlockingIOError:
                        await asyncio.sleep(0.001)
            await until(lambda: stream.is_closed)
            assert not stream.direct.is_free

    run(body)
