"""How does a service run, from when it listens until it has ended?

It answers probes while the engine loads. A signal to stop lets what runs go on to its end, for a
while, and refuses everything new, also calls whose body is not there yet; a second one ends the
wait. An engine that cannot be started, or
not again, ends the service with its error.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn

from deepinfer_core.config.server import ServerSettings
from deepinfer_core.interfaces.async_engine import AsyncEngine
from deepinfer_core.server.app import App
from deepinfer_core.server.connection import uvicorn_config
from deepinfer_core.server.engine_process import EngineProcess
from deepinfer_core.server.signals import StopSignals
from deepinfer_core.telemetry.logs import get_logger

__all__ = ["Service", "run_service"]

_LAST_LOOK_S = 5.0
"""How long a service whose engine was given up tells so before it ends."""

_LAST_BYTES_S = 5
"""How long clients have to take the end of their answers."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What runs.

    Attributes:
        app: the ASGI application.
        engine: as the application uses it.
        process: the engine's.
        settings: of the server.
        listener: a bound socket.
    """

    app: App
    engine: AsyncEngine
    process: EngineProcess
    settings: ServerSettings
    listener: socket.socket


class _Server(uvicorn.Server):
    """Without signal handlers of its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def run_service(
    service: Service,
    told_ready: Callable[[], None],
    told_stopping: Callable[[int, float], None],
) -> None:
    """Serve until a signal, or until the engine is lost.

    Args:
        service: what runs; its listener and its engine are closed at the end.
        told_ready: called when requests are taken.
        told_stopping: called at the first signal, with the number of requests that are waited for
            and for how many seconds at most.

    Raises:
        DeepInferError: the engine could not be loaded, or was given up.
    """
    config = uvicorn_config(service.app, service.settings)
    config.timeout_graceful_shutdown = _LAST_BYTES_S
    server = _Server(config)
    with StopSignals() as signals:
        serving = asyncio.create_task(server.serve(sockets=[service.listener]))
        stopped = asyncio.create_task(signals.first.wait())
        lost = asyncio.create_task(service.process.given_up())
        try:
            await _until_ready(service, told_ready, {serving, stopped, lost})
            await asyncio.wait({serving, stopped, lost}, return_when=asyncio.FIRST_COMPLETED)
            if stopped.done():
                told_stopping(service.engine.in_work, service.settings.drain_seconds)
                await _drain(service, server, signals)
            elif lost.done() and service.process.was_ready:
                _log.error("service.engine_lost", reason=str(lost.result()))
                await asyncio.wait({stopped}, timeout=_LAST_LOOK_S)
            if lost.done() and not stopped.done():
                raise lost.result()
        finally:
            server.should_exit = True
            await asyncio.wait({serving})
            await service.engine.close()
            for task in (stopped, lost):
                task.cancel()
        serving.result()


async def _until_ready(
    service: Service, told_ready: Callable[[], None], ends: set[asyncio.Task[Any]]
) -> None:
    """Wait until requests are taken, or until one of some tasks has ended."""
    loading = asyncio.create_task(service.process.ready())
    try:
        await asyncio.wait({loading, *ends}, return_when=asyncio.FIRST_COMPLETED)
        if loading.done() and loading.exception() is None:
            # What was made so far lives as long as the service: no collection need look at it.
            gc.collect()
            gc.freeze()
            told_ready()
    finally:
        loading.cancel()


async def _drain(service: Service, server: _Server, signals: StopSignals) -> None:
    """Let what runs go on, and end what does not end in time."""
    seconds = service.settings.drain_seconds
    _log.debug("service.draining", in_work=service.engine.in_work, drain_seconds=seconds)
    draining = asyncio.create_task(service.engine.drain(seconds))
    hurried = asyncio.create_task(signals.second.wait())
    await asyncio.sleep(0)  # so that the application refuses what comes from now on
    service.app.refuse_unread()
    for connection in tuple(server.server_state.connections):
        connection.shutdown()  # those without a call are closed, the others behind it
    await asyncio.wait({draining, hurried}, return_when=asyncio.FIRST_COMPLETED)
    hurried.cancel()
    service.app.refuse_unread()  # also those that came meanwhile
    if not draining.done():
        draining.cancel()
        await asyncio.wait({draining})
        await service.engine.drain(0.0)
        server.force_exit = True
