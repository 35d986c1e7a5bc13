"""A server of one small protocol on a real socket, and loops that end as empty as they began."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

import httpx2
import pytest
import uvloop
from deepinfer_core.config.server import ServerSettings
from deepinfer_core.engine.sampling_params import SamplingParams
from deepinfer_core.interfaces.async_engine import Finished, GenerateRequest, Tokens
from deepinfer_core.interfaces.protocol import (
    Endpoint,
    EventAnswer,
    HttpAnswer,
    HttpCall,
    JsonAnswer,
    ServiceView,
)
from deepinfer_core.server.dialect import OPENAI, json_bytes
from deepinfer_core.testing.fake_async_engine import FakeAsyncEngine
from deepinfer_core.testing.served import app_of, served

T = TypeVar("T")
Serve = Callable[..., AbstractAsyncContextManager[httpx2.AsyncClient]]


def run_whole(
    body: Callable[[], Awaitable[T]], seconds: float = 30.0, *, on_uvloop: bool = False
) -> T:
    """Run to the end, which leaves no task behind."""

    async def main() -> T:
        async with asyncio.timeout(seconds):
            result = await body()
        for _ in range(20):
            left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            if not left:
                break
            await asyncio.sleep(0.05)
        assert not left
        return result

    factory = uvloop.new_event_loop if on_uvloop else None
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main())


def say_endpoints(service: ServiceView) -> Sequence[Endpoint]:
    """``/say`` answers with a text of the engine, as events if that is asked for."""

    async def say(call: HttpCall) -> HttpAnswer:
        request = GenerateRequest(
            request_id=call.request_id,
            prompt_token_ids=tuple(call.body.get("prompt", (65, 66))),
            params=SamplingParams(max_tokens=call.body.get("max_tokens", 4096)),
            cache_salt=call.body.get("user", ""),
        )

        async def pieces() -> AsyncIterator[str]:
            async for item in service.engine.generate(request):
                if isinstance(item, Tokens):
                    call.notes.completion_tokens += len(item.token_ids)
                    yield item.text
                elif isinstance(item, Finished):
                    call.notes.ended_by = item.aborted_by or ""

        async def events() -> AsyncIterator[bytes]:
            async for piece in pieces():
                yield b"data: " + json_bytes(piece) + b"\n\n"
            yield b"data: [DONE]\n\n"

        if call.body.get("stream"):
            return EventAnswer(events=events())
        text = "".join([piece async for piece in pieces()])
        return JsonAnswer(content=json_bytes({"text": text, "key": call.key_label}))

    body = {"type": "object", "properties": {"stream": {"type": "boolean"}}}
    return [Endpoint(method="POST", path="/say", handle=say, dialect=OPENAI, body=body)]


@asynccontextmanager
async def serving(
    engine: FakeAsyncEngine | None = None,
    make: Callable[[ServiceView], Sequence[Endpoint]] = say_endpoints,
    settings: dict[str, Any] | None = None,
    **parts: Any,
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a server that runs in this loop; ``client.app`` is the application."""
    chosen = ServerSettings(**(settings or {}))
    app = app_of(make, engine=engine or FakeAsyncEngine(), settings=chosen, **parts)
    async with served(app, chosen) as url, httpx2.AsyncClient(base_url=url, timeout=20) as client:
        client.app = app  # type: ignore[attr-defined]
        yield client
    app.close()


@pytest.fixture
def run() -> Callable[..., Any]:
    return run_whole


@pytest.fixture
def serve() -> Serve:
    return serving
