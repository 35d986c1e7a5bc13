"""The three protocols on a real socket, in the event loop of the test, with an engine's script."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from deepinfer_core.config.server import ServerSettings
from deepinfer_core.interfaces.async_engine import AsyncEngine
from deepinfer_core.server.app import App, AppParts
from deepinfer_core.server.protocols import ServedProtocol
from deepinfer_core.testing.served import served
from deepinfer_recipe_bridge.chat import Chat
from deepinfer_recipe_bridge.messages import Messages
from deepinfer_recipe_bridge.options import ChatOptions, MessagesOptions, ResponsesOptions
from deepinfer_recipe_bridge.responses import Responses
from scripted import ALL_KINDS, MODEL, marked

T = TypeVar("T")
KINDS = ALL_KINDS


def said(text: str) -> Callable[[Any], list[int]]:
    """A script: the same answer to everything; see ``scripted.marked``."""
    tokens = marked(text)
    return lambda request: tokens


def run(body: Callable[[], Awaitable[T]], seconds: float = 60.0) -> T:
    """Run to the end, which must come."""

    async def main() -> T:
        async with asyncio.timeout(seconds):
            return await body()

    return asyncio.run(main())


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
