"""The three protocols on a real socket, in the event loop of the test, and the SDKs' clients."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from deepinfer_core.config.server import ServerSettings
from deepinfer_core.errors import EngineError
from deepinfer_core.interfaces.async_engine import AsyncEngine
from deepinfer_core.server.app import App, AppParts
from deepinfer_core.server.protocols import ServedProtocol
from deepinfer_core.testing.byte_tokenizer import FIRST_BYTE
from deepinfer_core.testing.fake_async_engine import FakeAsyncEngine
from deepinfer_core.testing.served import served, until
from deepinfer_recipe_bridge.chat import Chat
from deepinfer_recipe_bridge.messages import Messages
from deepinfer_recipe_bridge.options import ChatOptions, MessagesOptions, ResponsesOptions
from deepinfer_recipe_bridge.responses import Responses
from pydantic import BaseModel
from scripted import ALL_KINDS, MODEL, marked

T = TypeVar("T")

SAID: Any = [{"role": "user", "content": "json?"}]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
CALL = (
    'Hm.\n\n<«D» calls>\n<«D» invoke name="weather">\n'
    '<«D» parameter name="city" string="true">Kö"ln</«D» parameter>\n</«D» invoke>\n</«D» calls>'
)
"""Of the tool ``weather``."""


class Inner(BaseModel):
    x: int


class Outer(BaseModel):
    """As the ``parse`` of clients sends it: strict, with definitions and a reference in anyOf."""

    name: str
    inner: Inner
    more: Inner | None


PARSED = '{"name": "é", "inner": {"x": 1}, "more": {"x": 2}}'
"""A text that is an ``Outer``."""


def engine_of(text: str, **more: Any) -> FakeAsyncEngine:
    """One that answers the same to everything; see ``scripted.marked``."""
    tokens = marked(text)
    return FakeAsyncEngine(lambda request: tokens, grammar_kinds=ALL_KINDS, **more)


def prompt_of(engine: FakeAsyncEngine, number: int) -> str:
    """The text of a request's prompt, without control tokens."""
    tokens = engine.requests[number].prompt_token_ids
    return bytes(token - FIRST_BYTE for token in tokens if token >= FIRST_BYTE).decode()


def failing_behind(tokens: int) -> FakeAsyncEngine:
    """An engine that fails in the midst of its answer."""

    def failure(request: Any, count: int) -> EngineError | None:
        return EngineError("broke") if count >= tokens else None

    return engine_of("a long answer", failure=failure)


def run(body: Callable[[], Awaitable[T]], seconds: float = 60.0) -> T:
    """Run to the end, which must come."""

    async def main() -> T:
        async with asyncio.timeout(seconds):
            return await body()

    return asyncio.run(main())


@asynccontextmanager
async def client_of(
    sdk: Callable[..., Any], path: str, engine: AsyncEngine, **settings: Any
) -> AsyncIterator[Any]:
    """The client of an official SDK that validates all it gets, and asks once.

    Args:
        sdk: makes it.
        path: of the protocol, behind the address.
        engine: that answers.
        settings: of the server; with keys the client has the one named ``k``.
    """
    async with serving(engine, **settings) as url:
        client = sdk(
            base_url=f"{url}{path}",
            api_key=settings.get("keys", {}).get("k", "none"),
            max_retries=0,
            _strict_response_validation=True,
        )
        async with client:
            yield client


async def left(engine: FakeAsyncEngine) -> dict[str, str]:
    """How all requests ended, as soon as they have."""
    await until(lambda: not engine.in_work and bool(engine.outcomes))
    return engine.outcomes


@asynccontextmanager
async def serving(engine: AsyncEngine, **settings: Any) -> AsyncIterator[str]:
    """Serve; gives the address."""
    keys = settings.pop("keys", {})
    chosen = ServerSettings(**settings)
    protocols = {
        "bridge.chat": Chat(ChatOptions()),
        "bridge.responses": Responses(ResponsesOptions(store_responses=4)),
        "bridge.messages": Messages(MessagesOptions()),
    }
    app = App(
        AppParts(
            engine=engine,
            settings=chosen,
            protocols=tuple(
                ServedProtocol(name=name, distribution="tests", options={}, protocol=protocol)
                for name, protocol in protocols.items()
            ),
            model_names=(MODEL,),
            keys=keys,
            running=128,
        )
    )
    async with served(app, chosen) as url:
        yield url
    app.close()
