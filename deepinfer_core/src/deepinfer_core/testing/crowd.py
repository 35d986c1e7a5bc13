"""How do the clients of a service behave, good ones and bad ones?

Each of them sends one request to one of the protocols and reads all of its answer, or goes away in
the middle of its request, of its waiting or of its stream, or has its request ended by another
call, or asks for what cannot be had. ``Crowd.admitted`` are clients that all want to stay, and
``newcomer`` is one that does not know whether there still is a service.
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

__all__ = ["PATHS", "Crowd", "status_of"]

PATHS = ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages")
"""Of the four protocols."""

_MOST_TOKENS = 24


def _body(path: str, source: random.Random, tokens: int, *, stream: bool) -> dict[str, Any]:
    """A request that is all right."""
    text = random_words(source.randint(1, 60), source)
    asked = {"model": "tiny", "stream": stream}
    if path == PATHS[0]:
        return {**asked, "prompt": text, "max_tokens": tokens}
    if path == PATHS[2]:
        return {**asked, "input": text, "max_output_tokens": tokens}
    return {**asked, "messages": [{"role": "user", "content": text}], "max_tokens": tokens}


def _wrong_body(path: str, source: random.Random) -> bytes:
    """A request that is not."""
    good = _body(path, source, 1, stream=source.random() < 0.5)
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
class Crowd:
    """Clients of a service of the model ``tiny``.

    Attributes:
        port: of the service on this machine.
        source: decides what each of them does.
        seen: how often each kind of client, on each path, saw which status; 0: it did not wait
            for one.
    """

    port: int
    source: random.Random
    seen: Counter[tuple[str, str, int]] = field(default_factory=Counter)

    async def run(self, count: int, at_once: int) -> None:
        """So many clients of all kinds, so many of them at a time."""
        kinds = iter([self.source.choice(_KINDS) for _ in range(count)])

        async def some() -> None:
            for kind in kinds:
                path = self.source.choice(PATHS)
                self.seen[kind.__name__.strip("_"), path, await kind(self, path)] += 1

        await asyncio.gather(*(some() for _ in range(at_once)))

    def admitted(self, tokens: list[int]) -> list[asyncio.Task[tuple[str, bytes]]]:
        """Clients that read all of their answers, one of so many tokens each.

        The protocols take turns, and so do streams and whole answers.

        Returns:
            Tasks with path and bytes of the answer each.
        """

        async def one(path: str, content: bytes) -> tuple[str, bytes]:
            return path, await self.asked(path, content)

        ways = [(path, stream) for stream in (True, False) for path in PATHS]
        found = []
        for place, count in enumerate(tokens):
            path, stream = ways[place % len(ways)]
            content = json.dumps(_body(path, self.source, count, stream=stream)).encode()
            found.append(asyncio.create_task(one(path, content)))
        return found

    async def newcomer(self) -> int:
        """One that comes at any time; its status, 0 if nobody listens or it got no answer."""
        path = self.source.choice(PATHS)
        try:
            return status_of(await self.asked(path, self.content(path, stream=True)))
        except ConnectionError:
            return 0

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

    async def asked(self, path: str, content: bytes, headers: str = "") -> bytes:
        """Send a request and read all of the answer."""
        reader, writer = await self.open(path, content, headers=headers)
        answer = await reader.read()
        writer.close()
        return answer

    def content(self, path: str, *, stream: bool) -> bytes:
        """Bytes of a request that is all right."""
        tokens = self.source.randint(1, _MOST_TOKENS)
        return json.dumps(_body(path, self.source, tokens, stream=stream)).encode()


def status_of(answer: bytes) -> int:
    """Of a response; 0 if it has none, or if whoever asked left before it came."""
    return int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") and len(answer) >= 12 else 0


async def _whole(crowd: Crowd, path: str) -> int:
    return status_of(await crowd.asked(path, crowd.content(path, stream=False)))


async def _stream(crowd: Crowd, path: str) -> int:
    return status_of(await crowd.asked(path, crowd.content(path, stream=True)))


async def _wrong(crowd: Crowd, path: str) -> int:
    return status_of(await crowd.asked(path, _wrong_body(path, crowd.source)))


async def _half_a_request(crowd: Crowd, path: str) -> int:
    content = crowd.content(path, stream=True)
    _, writer = await crowd.open(path, content, sent=crowd.source.randrange(len(content)))
    await asyncio.sleep(crowd.source.random() * 0.05)
    writer.transport.abort()
    return 0


async def _gone_while_waiting(crowd: Crowd, path: str) -> int:
    stream = crowd.source.random() < 0.5
    _, writer = await crowd.open(path, crowd.content(path, stream=stream))
    await asyncio.sleep(crowd.source.random() * 0.3)
    writer.transport.abort()
    return 0


async def _gone_in_the_stream(crowd: Crowd, path: str) -> int:
    reader, writer = await crowd.open(path, crowd.content(path, stream=True))
    found, enough = b"", crowd.source.randint(1, 4000)
    while len(found) < enough and (piece := await reader.read(enough)):
        found += piece
    writer.transport.abort()
    return status_of(found)


async def _ended_by_another(crowd: Crowd, path: str) -> int:
    name = f"soak-{crowd.source.getrandbits(64):x}"
    header = f"x-request-id: {name}\r\n"
    call = asyncio.create_task(crowd.asked(path, crowd.content(path, stream=True), headers=header))
    await asyncio.sleep(crowd.source.random() * 0.2)
    await crowd.asked("/abort", json.dumps({"request_id": name}).encode())
    return status_of(await call)


_KINDS: list[Callable[[Crowd, str], Awaitable[int]]] = [
    _whole, _stream, _stream, _wrong, _half_a_request, _gone_while_waiting, _gone_in_the_stream,
    _ended_by_another,
]  # fmt: skip
