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
from collections.abc import MutableMapping
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import uvicorn
from deepinfer_core.config import load_settings
from deepinfer_core.interfaces.async_engine import GenerateRequest, Tokens
from deepinfer_core.server.app import App, AppParts
from deepinfer_core.server.connection import uvicorn_config
from deepinfer_core.server.protocols import serve_protocols
from deepinfer_core.testing.byte_tokenizer import byte_tokens
from deepinfer_core.testing.fake_answers import Script
from deepinfer_core.testing.fake_async_engine import FakeAsyncEngine

STREAMS = 1024


LETTERS = [Tokens(byte_tokens(letter), letter) for letter in "a stone "]


def answer(request: GenerateRequest) -> Script:
    """The same letters for every request, as many as were asked for."""
    steps = islice(cycle(LETTERS), request.params.max_tokens)
    return Script(steps=steps, reason="length", cached=0)


def service(protocol: str) -> uvicorn.Config:
    """The real application with one protocol, on the connections that it is served on."""
    loaded = load_settings(overrides=[f"server.protocols={protocol}"])
    app = App(
        AppParts(
            engine=FakeAsyncEngine(answer, places=STREAMS, max_model_len=1 << 20),
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
