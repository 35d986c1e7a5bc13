"""Does anything that a socket can send make the server fail, hang or grow?"""

import asyncio
import gc
import json
import logging
import os
import random
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from deepinfer_core.testing.fake_async_engine import FakeAsyncEngine
from deepinfer_core.testing.served import until

LIMITS = {
    "header_timeout_s": 0.5,
    "body_timeout_s": 0.3,
    "idle_timeout_s": 0.3,
    "write_timeout_s": 0.5,
    "max_header_bytes": 8192,
    "max_body_bytes": 65_536,
}
"""Short, so that a test sees all of them pass."""

LONGEST_S = 20.0
"""Far beyond ten times the wait for a piece of a body: whatever comes has ended by then."""

AT_ONCE = 32
STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
BODIES = (b"{}", b'{"stream":true}', b'{"max_tokens":2}', b'{"a":' * 500, b"[1]", b"\xff\x00", b"")
PATHS = (b"/say", b"/health", b"/metrics", b"/v1/nope", b"/%00", b"/%ff%fe", b"//", b"*", b"")
METHODS = (b"GET", b"POST", b"HEAD", b"OPTIONS", b"DELETE", b"TRACE", b"CONNECT", b"PRI", b"\x00")
HEADERS = (
    b"content-type: application/json",
    b"content-type: text/plain",
    b"content-length: 2",
    b"content-length: 99999999999999999999999",
    b"content-length: -5",
    b"transfer-encoding: chunked",
    b"transfer-encoding: gzip, chunked",
    b"expect: 100-continue",
    b"connection: close",
    b"connection: upgrade",
    b"upgrade: websocket",
    b"upgrade: h2c",
    b"authorization: Bearer \xff\xfe",
    b"x-request-id: " + b"a" * 200,
    b"x: " + b"b" * 9000,
    b"origin: http://evil.example",
    b": nameless",
    b"bad header",
    b"a\x00b: c",
)


def well_formed(chance: random.Random) -> bytes:
    body = chance.choice(BODIES)
    head = b"POST /say HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    if chance.random() < 0.3:
        pieces = [body[i : i + 3] for i in range(0, len(body), 3)]
        framed = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
        return head + b"transfer-encoding: chunked\r\n\r\n" + framed + b"0\r\n\r\n"
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


def thrown_together(chance: random.Random) -> bytes:
    line = b" ".join(
        [
            chance.choice(METHODS),
            chance.choice(PATHS),
            chance.choice((b"HTTP/1.1", b"HTTP/1.0", b"")),
        ]
    )
    headers = chance.choices(HEADERS, k=chance.randrange(6))
    if chance.random() < 0.8:
        headers.insert(0, b"host: localhost")
    ending = chance.choice((b"\r\n", b"\n"))
    return line + ending + ending.join(headers) + ending * 2 + chance.choice(BODIES)


def damaged(chance: random.Random) -> bytes:
    data = bytearray(well_formed(chance))
    for _ in range(chance.randrange(1, 5)):
        place = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[place] = chance.randrange(256)
            case 1:
                del data[place : place + chance.randrange(1, 20)]
            case 2:
                data[place:place] = chance.randbytes(chance.randrange(1, 10))
            case 3:
                data[place:place] = data[: chance.randrange(len(data))]
        data = data or bytearray(b"\r\n")
    return bytes(data)


def noise(chance: random.Random) -> bytes:
    return chance.randbytes(chance.randrange(1, 3000))


def sent(chance: random.Random) -> bytes:
    make = chance.choice((well_formed, thrown_together, damaged, damaged, noise))
    return b"".join(make(chance) for _ in range(chance.choice((1, 1, 1, 2, 5))))


async def talk(address: Any, chance: random.Random) -> list[int]:
    """One connection: what it sends, how, and how it leaves; the statuses that came back."""
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    data = sent(chance)
    try:
        cut = chance.randrange(len(data) + 1)
        writer.write(data[:cut])
        if chance.random() < 0.5:
            await asyncio.sleep(chance.choice((0.0, 0.01, 0.1)))
            writer.write(data[cut:])
        leaves = chance.choice(("reads", "reads", "half", "resets"))
        if leaves == "half":
            writer.write_eof()
        elif leaves == "resets":
            await asyncio.sleep(0.01)
            writer.transport.abort()
            return []
        answer = await reader.read()
        return [int(status) for status in STATUS.findall(answer)]
    except (ConnectionError, OSError):
        return []
    finally:
        writer.close()


async def talked(address: Any, chance: random.Random, count: int) -> list[int]:
    statuses: list[int] = []
    for first in range(0, count, AT_ONCE):
        seeds = [chance.random() for _ in range(min(AT_ONCE, count - first))]
        async with asyncio.timeout(LONGEST_S):
            for found in await asyncio.gather(
                *[talk(address, random.Random(seed)) for seed in seeds]
            ):
                statuses += found
    return statuses


def held() -> tuple[int, int]:
    """Tasks and descriptors."""
    gc.collect()
    return len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("on_uvloop", [False, True])
def test_no_bytes_make_it_fail_hang_or_grow(
    run: Any, serve: Any, seed: int, on_uvloop: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        engine = FakeAsyncEngine(lambda request: "abc")
        async with serve(engine, settings=LIMITS) as client:
            address = urlsplit(str(client.base_url))
            before = held()
            statuses = await talked(address, random.Random(seed), 160)
            # Answers come, and none says that the server failed.
            assert {200, 400} <= set(statuses)
            assert max(statuses) < 500
            # What is left is let go of within the limits.
            await until(lambda: client.app.engine.in_work == 0 and not client.app._in_work)
            async with asyncio.timeout(LONGEST_S):
                await until(lambda: held() == before)
            assert engine.in_work == 0
            assert (await client.post("/say", json={})).json()["text"] == "abc"

    run(body, 60.0, on_uvloop=on_uvloop)
    complaints = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert complaints == []


def parts() -> Iterator[bytes]:
    """A call, up to some place."""
    body = json.dumps({"a": "x" * 50}).encode()
    head = b"POST /say HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    whole = head + b"content-length: %d\r\n\r\n" % len(body) + body
    for stop in range(0, len(whole), 7):
        yield whole[:stop]


def test_a_call_that_stops_anywhere_is_let_go(run: Any, serve: Any) -> None:
    async def one(address: Any, part: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(part)
        try:
            return await reader.read()
        finally:
            writer.close()

    async def body() -> None:
        engine = FakeAsyncEngine()
        async with serve(engine, settings=LIMITS) as client:
            address = urlsplit(str(client.base_url))
            async with asyncio.timeout(LONGEST_S):
                answers = await asyncio.gather(*[one(address, part) for part in parts()])
            assert {answer[:12] for answer in answers} == {b"HTTP/1.1 408"}
            assert engine.requests == []

    run(body)


def test_many_clients_that_leave_at_any_moment_leave_nothing(run: Any, serve: Any) -> None:
    async def one(address: Any, chance: random.Random) -> None:
        _, writer = await asyncio.open_connection(address.hostname, address.port)
        payload = json.dumps({"stream": chance.random() < 0.5}).encode()
        writer.write(
            b"POST /say HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n" % len(payload) + payload
        )
        await asyncio.sleep(chance.random() * 0.1)
        writer.transport.abort()

    async def body() -> None:
        engine = FakeAsyncEngine(lambda request: "x" * 500, step_s=0.001, places=8)
        async with serve(engine, settings=LIMITS, running=8) as client:
            address = urlsplit(str(client.base_url))
            before = held()
            chance = random.Random(5)
            for _ in range(5):
                await asyncio.gather(*[one(address, chance) for _ in range(60)])
            async with asyncio.timeout(LONGEST_S):
                await until(lambda: client.app.engine.in_work == 0 and held() == before)
            assert engine.in_work == 0
            assert len(engine.requests) > 0

    run(body)
