"""How does a request reach a service, and what becomes of it there?"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from deepinfer_core.bench.serve.connection import Connection, Receiver
from deepinfer_core.bench.serve.exchange import Exchange
from deepinfer_core.errors import ConfigError, EngineError

__all__ = ["Client", "Target", "parse_target"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a service is.

    Attributes:
        url: as it was given, without a slash at the end.
        host, port: of the server.
        is_encrypted: https.
        path: in front of ``/chat/completions``; ``/v1`` where the address has none.
        key: bearer key; empty: none is sent.
    """

    url: str
    host: str
    port: int
    is_encrypted: bool
    path: str
    key: str = field(default="", repr=False)

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """The bytes of a request."""
        lines = [f"{method} {self.path}{path} HTTP/1.1", f"host: {self.host}:{self.port}"]
        if self.key:
            lines.append(f"authorization: Bearer {self.key}")
        if body:
            lines += ["content-type: application/json", f"content-length: {len(body)}"]
        return "\r\n".join([*lines, "accept: */*", "", ""]).encode("latin-1") + body


def parse_target(url: str, key: str = "") -> Target:
    """Read an address.

    Args:
        url: ``http://host:port``, with ``/v1`` or another path behind it or not.
        key: bearer key.

    Raises:
        ConfigError: it is no such address, or the key cannot stand in a header.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"the address is {url!r}", hint="give one like http://127.0.0.1:8000")
    if not (key.isascii() and key.isprintable()):
        raise ConfigError("the key holds characters that no header may", hint="check its file")
    is_encrypted = parts.scheme == "https"
    return Target(
        url=url.rstrip("/"),
        host=parts.hostname,
        port=port or (443 if is_encrypted else 80),
        is_encrypted=is_encrypted,
        path=parts.path.rstrip("/") or "/v1",
        key=key,
    )


class Client:
    """Connections to one service; one that is free is used again."""

    def __init__(self, target: Target, *, timeout_s: float) -> None:
        self._target = target
        self._timeout_s = timeout_s
        self._encryption = ssl.create_default_context() if target.is_encrypted else None
        self._free: list[Connection] = []

    async def ask(self, path: str, body: Mapping[str, Any], exchange: Exchange) -> None:
        """Send a request; the exchange says how it went, nothing is raised."""
        data = json.dumps(body, ensure_ascii=False).encode()
        exchange.sent_s = time.perf_counter()
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._send(self._target.request("POST", path, data), exchange)
        except TimeoutError:
            exchange.fail("timeout", f"no end within {self._timeout_s:g} s")
        except OSError as error:
            exchange.fail("cut" if exchange.status else "connect", str(error))
        exchange.end(time.perf_counter())

    async def get(self, path: str) -> Any:
        """JSON data of a GET.

        Raises:
            EngineError: the service cannot be reached, or answers something else.
        """
        page = _Page()
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._send(self._target.request("GET", path), page)
            found = json.loads(page.content)
        except (OSError, ValueError) as error:
            raise EngineError(
                f"asked {self._target.url} for {path}, found {error or type(error).__name__}",
                hint="is the service running there?",
            ) from error
        if page.status != 200:
            raise EngineError(
                f"asked {self._target.url} for {path}, found status {page.status}",
                hint="it needs a key: --key-file" if page.status in (401, 403) else "is it ready?",
            )
        return found

    async def close(self) -> None:
        """Close the connections that are free."""
        free, self._free = self._free, []
        for connection in free:
            connection.close()
            await connection.wait_closed()

    async def _send(self, request: bytes, receiver: Receiver) -> None:
        connection = await self._connection()
        try:
            await connection.exchange(request, receiver)
        except BaseException:
            connection.close()
            await connection.wait_closed()
            raise
        if connection.is_open:
            self._free.append(connection)

    async def _connection(self) -> Connection:
        while self._free:
            connection = self._free.pop()
            if connection.is_open:
                return connection
        target, loop = self._target, asyncio.get_running_loop()
        _, made = await loop.create_connection(
            Connection, target.host, target.port, ssl=self._encryption
        )
        return made


@dataclass(slots=True)
class _Page:
    """A small response as a whole."""

    status: int = 0
    content: bytes = b""
    retry_after_s: float = 0.0

    def begin(self, status: int, now_s: float) -> None:
        self.status = status

    def add(self, piece: bytes, now_s: float) -> None:
        self.content += piece
