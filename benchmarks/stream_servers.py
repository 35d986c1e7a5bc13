"""Program: which servers are compared? Serves one of them on a free port, and prints the port.

``service``: the real application with the protocol that is named, above an engine that costs next
to nothing: it gives prepared tokens, one of each request in a step, and a step as often as the
event loop comes round. What a step gives is handed out as ``EngineProcess`` does it when a message
of the engine's process has come.
``echo``: no application at all: a bare ASGI application that sends the pieces of one response of
that service as they were written, one as often as the event loop comes round, on plain uvicorn.
"""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import sys
from collections.abc import AsyncIterator, MutableMapping
from pathlib import Path
from typing import Any

import uvicorn
from deepinfer_core.config import load_settings
from deepinfer_core.engine.service.messages import Ended, Grown, StartedRow, StepDone
from deepinfer_core.interfaces.async_engine import GenerateRequest, Item
from deepinfer_core.server.app import App, AppParts
from deepinfer_core.server.connection import uvicorn_config
from deepinfer_core.server.live_requests import LiveRequests
from deepinfer_core.server.protocols import serve_protocols
from deepinfer_core.testing.byte_tokenizer import byte_tokens
from deepinfer_core.testing.fake_async_engine import FakeAsyncEngine

STREAMS = 1024
LETTERS = [(byte_tokens(letter), letter) for letter in "a stone "]


class PreparedEngine(FakeAsyncEngine):
    """Gives the same letters to every request, as many as were asked for."""

    def __init__(self) -> None:
        super().__init__(max_model_len=1 << 20)
        self._live = LiveRequests(STREAMS)
        self._began: dict[int, int] = {}
        self._over: dict[int, list[int]] = {}
        self._number = 0
        self._steps: asyncio.Task[None] | None = None

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Item]:
        """As ``EngineProcess`` does it, without a process."""
        live = self._live.new(request)
        self._live.add(live)
        row = StartedRow(live.number, len(request.prompt_token_ids), 0)
        self._live.heard(StepDone([row], [], [], []))
        self._began[live.number] = self._number + 1
        self._over.setdefault(self._number + request.params.max_tokens, []).append(live.number)
        if self._steps is None:
            self._steps = asyncio.create_task(self._run())
        while True:
            if (item := live.take()) is not None:
                yield item
            elif live.is_over:
                return
            else:
                await live.changed()

    async def _run(self) -> None:
        while self._began:
            await asyncio.sleep(0)
            self._number += 1
            grown = [
                Grown(number, *LETTERS[(self._number - began) % len(LETTERS)])
                for number, began in self._began.items()
            ]
            over = self._over.pop(self._number, ())
            ended = [Ended(number, "length", 0, 0, 0, 0, 0, 0.0, None) for number in over]
            for number in over:
                del self._began[number]
            self._live.heard(StepDone([], grown, ended, []))
        self._steps = None


def service(protocol: str) -> uvicorn.Config:
    """The real application with one protocol, on the connections that it is served on."""
    loaded = load_settings(overrides=[f"server.protocols={protocol}"])
    app = App(
        AppParts(
            engine=PreparedEngine(),
            settings=loaded.settings.server,
            protocols=serve_protocols(loaded),
            model_names=("prepared",),
            running=STREAMS,
            max_queued=STREAMS,
        )
    )
    return uvicorn_config(app, loaded.settings.server)


def echo(pieces: list[bytes]) -> uvicorn.Config:
    """The pieces of a response for whatever is asked."""

    async def answer(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for piece in pieces:
            await asyncio.sleep(0)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return uvicorn.Config(answer, lifespan="off", access_log=False, log_config=None)


def main() -> None:
    """Serve until standard input ends."""
    kind, argument = sys.argv[1:]
    if kind == "service":
        config = service(argument)
    else:
        config = echo([piece.encode() for piece in json.loads(Path(argument).read_text())])
    gc.collect()
    gc.freeze()  # as the service does when it is up
    listener = socket.create_server(("127.0.0.1", 0), backlog=STREAMS)
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
