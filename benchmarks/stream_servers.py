"""Program: which servers are compared? Serves one of them on a free port, and prints the port.

``service``: the real application with the protocol that is named, above an engine that costs next
to nothing: it gives prepared tokens, one a step, as fast as the event loop comes round.
``echo``: no application at all: the pieces of one response of that service, as they were written,
with as much waiting in between, on plain uvicorn.
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
from deepinfer_core.interfaces.async_engine import (
    AsyncEngine,
    EngineFacts,
    EngineState,
    Finished,
    GenerateRequest,
    Item,
    Started,
    Tokens,
)
from deepinfer_core.server.app import App, AppParts
from deepinfer_core.server.connection import uvicorn_config
from deepinfer_core.engine.service.messages import Ended, Grown, StartedRow, StepDone
from deepinfer_core.server.live_requests import LiveRequests
from deepinfer_core.server.protocols import serve_protocols
from deepinfer_core.testing.fake_answers import byte_tokens
from deepinfer_core.testing.fake_async_engine import FakeAsyncEngine

STREAMS = 1024


class PreparedEngine(AsyncEngine):
    """Gives the same letters for every request, a token of each in a step.

    What a step gives is handed out as the front of the engine's process hands out its messages.
    """

    state: EngineState = "ready"

    def __init__(self) -> None:
        self._facts = FakeAsyncEngine(max_model_len=1 << 20).facts
        self._letters = [(byte_tokens(letter), letter) for letter in "a stone "]
        self._requests = LiveRequests(STREAMS)
        self._left: dict[int, int] = {}
        self._steps: asyncio.Task[None] | None = None

    @property
    def facts(self) -> EngineFacts:
        """Of the byte tokenizer."""
        return self._facts

    @property
    def in_work(self) -> int:
        """Requests that are answered."""
        return len(self._requests)

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Item]:
        """As many tokens as were asked for."""
        live = self._requests.new(request)
        self._requests.add(live)
        self._requests.heard(StepDone([StartedRow(live.number, len(request.prompt_token_ids), 0)], [], [], []))
        self._left[live.number] = request.params.max_tokens
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
        left = self._left
        while left:
            await asyncio.sleep(0)
            grown = []
            ended = []
            for number, count in left.items():
                ids, text = self._letters[-count % 8]
                grown.append(Grown(number, ids, text))
                left[number] = count - 1
                if count == 1:
                    ended.append(number)
            for number in ended:
                del left[number]
            self._requests.heard(StepDone([], grown, [Ended(number, "length", 2, 0, 200, 0, 0, 0.0, None) for number in ended], []))
        self._steps = None

    def abort(self, request_id: str) -> bool:
        """Nothing is aborted here."""
        return False

    async def metrics_text(self) -> str:
        """It has none."""
        return ""

    async def drain(self, seconds: float) -> bool:
        """Nothing is waited for."""
        return True

    async def close(self) -> None:
        """It holds nothing."""


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
