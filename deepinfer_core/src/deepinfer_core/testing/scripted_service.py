"""What does a client do when a service answers exactly this?

A small HTTP/1.1 server in a thread of its own, for tests of clients: it notes what it is asked, and
answers with the bytes that a test wrote down, whole, in pieces, cut off or never.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal

__all__ = ["Asked", "Reply", "ScriptedService", "streamed_answer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request.

    Attributes:
        method, path: of it.
        headers: names in lower case.
        body: JSON data; None: there was none.
        connection: number of the connection that it came over.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    connection: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What is sent back.

    Attributes:
        status: of HTTP.
        headers: beside those of the framing.
        pieces: of the body; each is written on its own.
        pause_s: before each piece.
        end: how the body ends: ``chunked`` and ``length`` frame it, ``close`` ends it with the
            connection, ``cut`` closes a chunked body in its midst, ``hang`` says nothing more.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: Sequence[bytes] = ()
    pause_s: float = 0.0
    end: Literal["chunked", "length", "close", "cut", "hang"] = "chunked"


def streamed_answer(asked: Asked, *, pause_s: float = 0.0) -> Reply:
    """As many tokens as were asked for, as a service of the OpenAI form streams them.

    A prompt has as many tokens as words; the model list has one model, ``scripted``.
    """
    if asked.path.endswith("/models"):
        return Reply(pieces=(b'{"data": [{"id": "scripted"}]}',), end="length")
    body = asked.body
    said = [str(message["content"]) for message in body.get("messages", ())] or [body["prompt"]]
    count = body["max_tokens"]
    form = (lambda text: {"delta": {"content": text}}) if "messages" in body else _as_text
    chunks: list[dict[str, Any]] = [
        {"choices": [{**form(f" w{place}"), "finish_reason": None}]} for place in range(count)
    ]
    chunks[-1]["choices"][0]["finish_reason"] = "length"
    usage = {"prompt_tokens": len(" ".join(said).split()), "completion_tokens": count}
    chunks.append({"choices": [], "usage": usage | {"prompt_cache_hit_tokens": 1}})
    events = [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks]
    return Reply(pieces=(*events, b"data: [DONE]\n\n"), pause_s=pause_s)


def _as_text(text: str) -> dict[str, Any]:
    return {"text": text}


class ScriptedService:
    """Serves on a free port of the loopback interface within a ``with`` block.

    Attributes:
        asked: all requests so far.
        url: of the server.
    """

    def __init__(self, answer: Callable[[Asked], Reply] = streamed_answer) -> None:
        self.asked: list[Asked] = []
        self.url = ""
        self._answer = answer
        self._connections = 0
        self._is_up = threading.Event()
        self._stop: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> ScriptedService:
        self._thread.start()
        self._is_up.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()
        self._thread.join()

    async def _serve(self) -> None:
        over, loop = asyncio.Event(), asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(over.set)
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._is_up.set()
        await over.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        number = self._connections
        try:
            while (asked := await _read(reader, number)) is not None:
                self.asked.append(asked)
                if not await _send(writer, self._answer(asked)):
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass  # The client went away, or the test is over: nobody is left to tell.
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader, connection: int) -> Asked | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    content = await reader.readexactly(int(headers.get("content-length", 0)))
    body = json.loads(content) if content else None
    return Asked(method=method, path=path, headers=headers, body=body, connection=connection)


async def _send(writer: asyncio.StreamWriter, reply: Reply) -> bool:
    """Whether the connection stays."""
    headers = dict(reply.headers)
    if reply.end == "length":
        headers["content-length"] = str(sum(map(len, reply.pieces)))
    elif reply.end != "close":
        headers["transfer-encoding"] = "chunked"
    lines = [f"HTTP/1.1 {reply.status} X", *(f"{name}: {text}" for name, text in headers.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    is_chunked = "transfer-encoding" in headers
    for piece in reply.pieces:
        await asyncio.sleep(reply.pause_s)
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)
        await writer.drain()
    if reply.end == "hang":
        await asyncio.Event().wait()
    if reply.end == "chunked":
        writer.write(b"0\r\n\r\n")
    return reply.end in ("chunked", "length")
