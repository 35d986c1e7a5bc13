"""How do clients behave, good ones and bad ones?

Each of them sends one request to one of the protocols and reads all of its answer, or goes away in
the middle of its request, of its waiting or of its stream, or has its request ended by another
call, or asks for what cannot be had.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from deepinfer_core.bench.serve.random_text import random_words

PATHS = ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages")
MOST_TOKENS = 24


def body(path: str, source: random.Random, *, stream: bool) -> dict[str, Any]:
    """A request that is all right."""
    text = random_words(source.randint(1, 60), source)
    tokens, asked = source.randint(1, MOST_TOKENS), {"model": "tiny", "stream": stream}
    if path == PATHS[0]:
        return {**asked, "prompt": text, "max_tokens": tokens}
    if path == PATHS[2]:
        return {**asked, "input": text, "max_output_tokens": tokens}
    return {**asked, "messages": [{"role": "user", "content": text}], "max_tokens": tokens}


def wrong_body(path: str, source: random.Random) -> bytes:
    """A request that is not."""
    good = body(path, source, stream=source.random() < 0.5)
    too_long = {**good, "prompt": "a " * 20_000, "input": "a " * 20_000}
    too_long["messages"] = [{"role": "user", "content": "a " * 20_000}]
    choices: list[Any] = [
        {**good, "model": "another"},
        {**good, "max_tokens": -1, "max_output_tokens": -1},
        {**good, "temperature": "hot"},
        {"model": "tiny"},
        too_long,
    ]
    if source.random() < 0.2:
        return b'{"model": "tiny", '
    return json.dumps(source.choice(choices)).encode()


@dataclass(slots=True)
class Clients:
    """A crowd of them.

    Attributes:
        port: of the service.
        source: decides what each of them does.
        seen: how often each kind of client saw which status; 0: it did not wait for one.
    """

    port: int
    source: random.Random
    seen: Counter[tuple[str, int]] = field(default_factory=Counter)

    async def run(self, count: int, at_once: int) -> None:
        """So many clients, so many of them at a time."""
        kinds = iter([self.source.choice(_KINDS) for _ in range(count)])

        async def some() -> None:
            for kind in kinds:
                path = self.source.choice(PATHS)
                self.seen[kind.__name__.strip("_"), await kind(self, path)] += 1

        await asyncio.gather(*(some() for _ in range(at_once)))

    async def open(
        self, path: str, content: bytes, *, headers: str = "", sent: int | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect and send a request, or so many bytes of its body."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = (
            f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n{headers}"
            f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        )
        writer.write(head.encode() + content[:sent])
        return reader, writer

    async def asked(self, path: str, content: bytes, headers: str = "") -> int:
        """Send a request and read all of the answer."""
        reader, writer = await self.open(path, content, headers=headers)
        answer = await reader.read()
        writer.close()
        return status(answer)

    def content(self, path: str, *, stream: bool) -> bytes:
        """Bytes of a request that is all right."""
        return json.dumps(body(path, self.source, stream=stream)).encode()


def status(answer: bytes) -> int:
    """Of a response; 0 if it has none."""
    return int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else 0


async def _whole(clients: Clients, path: str) -> int:
    return await clients.asked(path, clients.content(path, stream=False))


async def _stream(clients: Clients, path: str) -> int:
    return await clients.asked(path, clients.content(path, stream=True))


async def _wrong(clients: Clients, path: str) -> int:
    return await clients.asked(path, wrong_body(path, clients.source))


async def _half_a_request(clients: Clients, path: str) -> int:
    content = clients.content(path, stream=True)
    _, writer = await clients.open(path, content, sent=clients.source.randrange(len(content)))
    await asyncio.sleep(clients.source.random() * 0.05)
    writer.transport.abort()
    return 0


async def _gone_while_waiting(clients: Clients, path: str) -> int:
    stream = clients.source.random() < 0.5
    _, writer = await clients.open(path, clients.content(path, stream=stream))
    await asyncio.sleep(clients.source.random() * 0.3)
    writer.transport.abort()
    return 0


async def _gone_in_the_stream(clients: Clients, path: str) -> int:
    reader, writer = await clients.open(path, clients.content(path, stream=True))
    found, enough = b"", clients.source.randint(1, 4000)
    while len(found) < enough and (piece := await reader.read(enough)):
        found += piece
    writer.transport.abort()
    return status(found)


async def _ended_by_another(clients: Clients, path: str) -> int:
    name = f"soak-{clients.source.getrandbits(64):x}"
    header = f"x-request-id: {name}\r\n"
    call = asyncio.create_task(
        clients.asked(path, clients.content(path, stream=True), headers=header)
    )
    await asyncio.sleep(clients.source.random() * 0.2)
    await clients.asked("/abort", json.dumps({"request_id": name}).encode())
    return await call


_KINDS: list[Callable[[Clients, str], Awaitable[int]]] = [
    _whole, _stream, _stream, _wrong, _half_a_request, _gone_while_waiting, _gone_in_the_stream,
    _ended_by_another,
]  # fmt: skip
