"""An event loop that must have nothing to complain about, and engines that are gone afterwards."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from deepinfer_core.channel.restarts import Restarts
from deepinfer_core.config import load_settings
from deepinfer_core.server.engine_process import EngineProcess
from deepinfer_core.testing.fake_service import FakeService, command_of
from deepinfer_core.testing.seeds import seed_of

Main = Callable[[], Coroutine[Any, Any, None]]
OpenProcess = Callable[..., AbstractAsyncContextManager[EngineProcess]]

WAIT_S = 60
"""A hang is a failure, not a wait for ever; a busy machine takes long to start a process."""


@pytest.fixture
def run_async() -> Callable[[Main], None]:
    """Run a coroutine; tasks and complaints that it leaves behind fail the test."""

    def run(main: Main) -> None:
        complaints: list[dict[str, Any]] = []

        async def guarded() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: complaints.append(context))
            async with asyncio.timeout(WAIT_S):
                await main()
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, left

        asyncio.run(guarded())
        assert complaints == []

    return run


@pytest.fixture
def open_process() -> OpenProcess:
    """Open an engine's process over the fake runner; it is ready, unless it is not to be."""

    @contextlib.asynccontextmanager
    async def build(
        service: FakeService | None = None,
        *,
        is_ready: bool = True,
        max_queued: int = 1024,
        **options: Any,
    ) -> AsyncIterator[EngineProcess]:
        settings = load_settings(
            environ={}, api={"engine.max_queued": max_queued, "telemetry.level": "off"}
        )
        options.setdefault("restarts", Restarts(first_wait_s=0.01))
        engine = EngineProcess(settings, command=command_of(service or FakeService()), **options)
        try:
            if is_ready:
                await engine.ready()
            yield engine
        finally:
            number = engine.process_id
            await engine.close()
            assert number is None or is_gone(number)

    return build


def is_gone(process_id: int, wait_s: float = 10.0) -> bool:
    """Whether a process has ended, now or soon."""
    until_s = time.monotonic() + wait_s
    while time.monotonic() < until_s:
        try:
            os.kill(process_id, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def gone() -> Callable[[int], bool]:
    """Whether a process has ended, now or soon."""
    return is_gone


@pytest.fixture
def data_seed(request: pytest.FixtureRequest) -> int:
    """Numbers of this test alone."""
    return seed_of(request)
