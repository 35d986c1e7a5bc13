"""How does a test call a server as clients do, over a socket?"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from deepinfer_core.config.server import ServerSettings
from deepinfer_core.server.connection import uvicorn_config

__all__ = ["served"]


@asynccontextmanager
async def served(app: Any, settings: ServerSettings) -> AsyncIterator[str]:
    """Serve an application on a free port of this machine, in this event loop.

    Args:
        app: an ASGI application.
        settings: with the limits of connections.

    Yields:
        The address, ``http://127.0.0.1:PORT``.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn_config(app, settings)
    config.timeout_graceful_shutdown = 1
    server = uvicorn.Server(config)
    # Not ``serve``: signals belong to whoever runs the tests.
    serving = asyncio.create_task(server._serve([listener]))
    try:
        # The socket listens already: who calls before the server has begun waits for it.
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
