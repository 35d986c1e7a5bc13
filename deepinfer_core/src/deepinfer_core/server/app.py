"""How does a call pass from the network to the protocol that answers it?

In this order: host and origin, key, route, type of the body, limits of the key, body, protocol.
What is refused is refused at the first of them, in the dialect of the path, and before anything of
a body was read where that is possible.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.routing import BaseRoute, Match

from deepinfer_core.config.server import ServerSettings
from deepinfer_core.errors import DeepInferError
from deepinfer_core.interfaces.async_engine import AsyncEngine
from deepinfer_core.interfaces.protocol import Endpoint, EventAnswer, HttpCall, ServiceView
from deepinfer_core.server.bodies import Bodies
from deepinfer_core.server.body import ClientGone, Receive, check_type, has_body
from deepinfer_core.server.call_record import CallRecord, write_access_log
from deepinfer_core.server.callers import CALLER
from deepinfer_core.server.connection import BAD_BODY, CLOSING
from deepinfer_core.server.conversations import Conversations
from deepinfer_core.server.dialect import OPENAI, json_bytes
from deepinfer_core.server.direct_write import direct_write_of
from deepinfer_core.server.exchange import Exchange, Send, request_id_of
from deepinfer_core.server.fair_engine import FairEngine
from deepinfer_core.server.http_metrics import HttpMetrics
from deepinfer_core.server.keys import Keys
from deepinfer_core.server.limits import KeyLimits
from deepinfer_core.server.openapi import openapi_document
from deepinfer_core.server.origins import Origins
from deepinfer_core.server.protocols import ServedProtocol
from deepinfer_core.server.refusals import Refused, out_of_time, unforeseen
from deepinfer_core.server.routes import Route, Routes
from deepinfer_core.server.service_endpoints import (
    METRICS_PATH,
    OWNER,
    PROBE_PATHS,
    service_endpoints,
)
from deepinfer_core.server.threads import Threads
from deepinfer_core.server.unavailable import Stopping
from deepinfer_core.server.watching import client_gone, until_gone
from deepinfer_core.telemetry.logs import get_logger

__all__ = ["App", "AppParts"]

_PAGE = "page"

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppParts:
    """What a server is made of.

    Attributes:
        engine: answers requests.
        settings: of the server.
        protocols: what is served.
        model_names: names under which the model is served, its own first.
        keys: key by label; empty: none is asked for.
        running: sequences that the engine runs at once.
        max_queued: requests that may be in work.
        progress: tells how far the loading of the engine is, as JSON data.
        pages: for people, not for programs; they need no key, so they hold no secrets.
    """

    engine: AsyncEngine
    settings: ServerSettings
    protocols: Sequence[ServedProtocol]
    model_names: tuple[str, ...]
    keys: Mapping[str, str] = field(default_factory=dict)
    running: int = 16
    max_queued: int = 1024
    progress: Callable[[], Mapping[str, Any]] = dict
    pages: Sequence[BaseRoute] = ()


class App:
    """The server as an ASGI application.

    Args:
        parts: what it is made of.

    Attributes:
        engine: the engine as protocols see it; whoever stops the server drains this one.

    Raises:
        ConfigError: two protocols claim one path.
    """

    def __init__(self, parts: AppParts) -> None:
        settings = parts.settings
        self.engine = FairEngine(
            parts.engine,
            # A few more than run, so that a free place is filled in the very next step.
            places=parts.running + 1 + parts.running // 4,
            max_in_work=parts.max_queued,
            queue_timeout_s=settings.queue_timeout_s,
            retention_of=settings.retention_of,
        )
        self._settings = settings
        self._keys = Keys(parts.keys)
        self._origins = Origins(settings.cors_origins, settings.host, checks_host=not self._keys)
        self._limits = KeyLimits(settings.max_per_key, settings.rate_per_key)
        self._threads = Threads()
        self._bodies = Bodies(settings, self._threads)
        self._pages = tuple(parts.pages)
        owners = [OWNER, _PAGE, *[one.name for one in parts.protocols]]
        self._metrics = HttpMetrics(owners, lambda: self.engine.waiting)
        self._in_work: set[str] = set()
        self._routes = Routes(self._endpoints(parts), OPENAI)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer a call; see ASGI."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        headers = dict(scope["headers"])
        request_id = request_id_of(headers)
        if request_id in self._in_work:
            # The id that a client chose is in work; two calls of one id could not be told apart.
            request_id = request_id_of({})
        self._in_work.add(request_id)
        record = CallRecord(request_id=request_id)
        dialect, direct = self._routes.dialect(scope["path"]), direct_write_of(scope)
        exchange = Exchange(headers, receive, send, record, dialect, direct)
        self._metrics.began()
        try:
            await self._answered(scope, exchange)
        finally:
            self._in_work.discard(request_id)
            if scope.get("state", {}).get(BAD_BODY):
                record.refused_by_connection()
            self._metrics.ended(record)
            write_access_log(record)

    def refuse_unread(self) -> None:
        """Refuse calls whose body is not there yet: the service stops, and waits for none."""
        self._bodies.refuse_unread()

    def close(self) -> None:
        """Give back threads."""
        self._threads.close()

    def _endpoints(self, parts: AppParts) -> list[tuple[str, Endpoint]]:
        created_s = int(time.time())
        own = service_endpoints(self.engine, self._metrics, parts.progress, self._document)
        found = [(OWNER, endpoint) for endpoint in own]
        conversations = Conversations(self._threads)
        for served in parts.protocols:
            view = ServiceView(
                engine=self.engine,
                model_names=parts.model_names,
                options=served.options,
                created_s=created_s,
                in_threads=self._threads.run,
                conversation_tokens=conversations.tokens,
            )
            conversations.add(served.protocol, view)
            found += [(served.name, endpoint) for endpoint in served.protocol.endpoints(view)]
        return found

    def _document(self) -> bytes:
        return json_bytes(openapi_document(self._routes, needs_key=bool(self._keys)))

    async def _live(self, receive: Receive, send: Send) -> None:
        while (await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        self.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answered(self, scope: MutableMapping[str, Any], exchange: Exchange) -> None:
        """Answer, whatever goes wrong."""
        exchange.has_unread_body = has_body(exchange.headers)
        exchange.common += self._origins.headers(exchange.headers)
        try:
            try:
                await self._checked(scope, exchange)
            except DeepInferError as error:
                await exchange.fail(error)
        except ClientGone:
            exchange.record.client_gone = True
        except asyncio.CancelledError:
            # Only a service that stops ends calls, and only those that nothing else has ended.
            exchange.has_unread_body = False
            await exchange.fail(Stopping("the service is shutting down"))
        except Exception as error:  # noqa: BLE001 - nobody learns more than that it failed
            if _is_cut(scope):
                # Some event loops raise when something is sent to a client that is gone.
                exchange.record.client_gone = True
                await client_gone(exchange.receive)
                return
            # The text of a foreign exception may repeat what a client wrote.
            stack = "".join(traceback.format_tb(error.__traceback__))
            name = type(error).__name__
            request_id = exchange.record.request_id
            _log.error("call.failed", request_id=request_id, exception=name, stack=stack)
            await exchange.fail(unforeseen())

    async def _checked(self, scope: MutableMapping[str, Any], exchange: Exchange) -> None:
        headers, record = exchange.headers, exchange.record
        method, path = scope["method"], scope["path"]
        if len([name for name, _ in scope["headers"] if name == b"host"]) > 1:
            raise Refused(400, "bad_request", "the request names more than one host")
        self._origins.check(headers)
        preflight = self._origins.preflight(headers) if method == "OPTIONS" else None
        if preflight is not None:
            record.owner = OWNER
            await exchange.empty(204, preflight)
            return
        if await self._showed_page(scope, exchange):
            return
        if path not in PROBE_PATHS and (path != METRICS_PATH or self._settings.metrics_auth):
            record.key_label = self._keys.label_of(headers)
        route, values = self._routes.find(method, path)
        record.method, record.route, record.owner = route.endpoint.method, route.path, route.owner
        CALLER.set(record.key_label)
        if route.endpoint.method != "POST":
            exchange.has_unread_body = False  # if there is one, it is read and means nothing
            call = exchange.call(path_values=values, body={})
            await until_gone(self._answer(route, call, exchange), exchange.receive)
            return
        check_type(headers)
        with self._limits.taken(record.key_label, counts=route.endpoint.counts) as claim:
            try:
                body = await self._bodies.read(exchange)
                call = exchange.call(path_values=values, body=body, claim=claim.grow)
                await until_gone(self._answer(route, call, exchange), exchange.receive)
            finally:
                self._bodies.let_go()

    async def _showed_page(self, scope: MutableMapping[str, Any], exchange: Exchange) -> bool:
        for page in self._pages:
            match, found = page.matches(scope)
            if match is Match.FULL:
                exchange.record.owner = _PAGE
                scope.update(found)
                await page.handle(scope, exchange.receive, exchange.passed_on)
                return True
        return False

    async def _answer(self, route: Route, call: HttpCall, exchange: Exchange) -> None:
        record = exchange.record
        seconds = self._settings.request_timeout_s
        try:
            async with asyncio.timeout(seconds) as limit:
                answer = await route.endpoint.handle(call)
                if isinstance(answer, EventAnswer):
                    record.notes.stream = True
                    await exchange.stream(answer, self._settings.keep_alive_s)
                else:
                    await exchange.whole(answer)
        except TimeoutError:
            if seconds is None or not limit.expired():
                raise
            raise out_of_time(seconds) from None


def _is_cut(scope: MutableMapping[str, Any]) -> bool:
    """Whether the connection is closed, as far as it tells."""
    ask: Callable[[], bool] | None = scope.get("state", {}).get(CLOSING)
    return ask is not None and ask()
