"""How does a test call a server as clients do, over a socket?"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from uvicorn.server import ServerState

from deepinfer_core.config.server import ServerSettings
from deepinfer_core.interfaces.async_engine import AsyncEngine
from deepinfer_core.interfaces.protocol import Endpoint, Protocol, ServiceView
from deepinfer_core.server.app import App, AppParts
from deepinfer_core.server.connection import uvicorn_config
from deepinfer_core.server.protocols import ServedProtocol

__all__ = ["FixedProtocol", "app_of", "served", "until"]

_LAST_WAIT_S = 5.0


@asynccontextmanager
async def served(app: Any, settings: ServerSettings) -> AsyncIterator[str]:
    """Serve an application on a free port of this machine, in this event loop.

    Args:
        app: an ASGI application.
        settings: with the limits of connections.

    All connections are cut at the end.

    Yields:
        The address, ``http://127.0.0.1:PORT``.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn_config(app, settings)
    config.load()
    state = ServerState()
    # Not uvicorn's own server: signals belong to whoever runs the tests.
    server = await asyncio.get_running_loop().create_server(
        lambda: config.http_protocol_class(config, state, {}),  # type: ignore[call-arg]
        sock=listener,
    )
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.close()
        for connection in tuple(state.connections):
            connection.transport.abort()
        if state.tasks:
            await asyncio.wait(state.tasks, timeout=_LAST_WAIT_S)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something to become true."""
    while True:
        if condition():
            return
        await asyncio.sleep(0.002)


class FixedProtocol(Protocol):
    """A protocol whose endpoints a test gives.

    Args:
        make: gives them.
    """

    def __init__(self, make: Callable[[ServiceView], Sequence[Endpoint]]) -> None:
        self._make = make

    def endpoints(self, service: ServiceView) -> Sequence[Endpoint]:
        """What was given."""
        return self._make(service)


def app_of(
    make: Callable[[ServiceView], Sequence[Endpoint]] = lambda service: (),
    *,
    engine: AsyncEngine,
    settings: ServerSettings,
    name: str = "test.fixed",
    **parts: Any,
) -> App:
    """A server of one protocol.

    Args:
        make: gives its endpoints.
        engine: answers requests.
        settings: of the server.
        name: of the protocol.
        parts: more of ``AppParts``.
    """
    protocol = ServedProtocol(
        name=name, distribution="tests", options={}, protocol=FixedProtocol(make)
    )
    return App(
        AppParts(
            engine=engine, settings=settings, protocols=(protocol,), model_names=("fake",), **parts
        )
    )
