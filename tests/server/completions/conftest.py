"""``core.completions`` over an engine that answers by a script, without HTTP."""

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from deepinfer_core.interfaces.protocol import (
    CallNotes,
    DirectWrite,
    Endpoint,
    EventAnswer,
    HttpAnswer,
    HttpCall,
    JsonAnswer,
    ServiceView,
)
from deepinfer_core.server.completions.protocol import build
from deepinfer_core.testing.fake_async_engine import FakeAsyncEngine


class Beside(DirectWrite):
    """Writes beside the iterator; the client takes what is written at once, but not always."""

    def __init__(self, writes: list[bytes]) -> None:
        self.last_s = 0.0
        self.writes = writes
        self.takes = itertools.cycle((True, False, True, True))

    @property
    def is_free(self) -> bool:  # type: ignore[override]
        return bool(self.writes) and next(self.takes)

    def write(self, data: bytes) -> None:
        self.writes.append(data)


class Service:
    """The endpoints of the protocol, called as the server's shell calls them."""

    def __init__(
        self, engine: FakeAsyncEngine, model_names: tuple[str, ...] = ("fake", "other")
    ) -> None:
        self.engine = engine
        self.notes = CallNotes()
        self.claimed: list[int] = []
        self.pulled = 0
        view = ServiceView(
            engine=engine,
            model_names=model_names,
            options={},
            created_s=1_760_000_000,
            in_threads=asyncio.to_thread,
        )
        self.endpoints: dict[tuple[str, str], Endpoint] = {}
        for endpoint in build(None, None).endpoints(view):
            for path in (endpoint.path, *endpoint.aliases):
                self.endpoints[endpoint.method, path] = endpoint

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        values: Mapping[str, str] | None = None,
        request_id: str = "r",
        key_label: str = "",
    ) -> HttpAnswer:
        self.notes = CallNotes()
        return await self.endpoints[method, path].handle(
            HttpCall(
                request_id=request_id,
                key_label=key_label,
                headers={},
                path_values=values or {},
                body=dict(body or {}),
                notes=self.notes,
                claim=self.claimed.append,
            )
        )

    def json(self, path: str, body: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """The body of a whole answer; GET without a body."""
        method = "GET" if body is None else "POST"
        answer = asyncio.run(self.call(method, path, body, **more))
        assert isinstance(answer, JsonAnswer)
        found: dict[str, Any] = json.loads(answer.content)
        return found

    def complete(self, prompt: Any = "ab", **fields: Any) -> dict[str, Any]:
        return self.json("/v1/completions", {"prompt": prompt, **fields})

    def writes(self, prompt: Any = "ab", **fields: Any) -> list[bytes]:
        """What is written at once of a stream, in order."""

        async def run() -> list[bytes]:
            body = {"prompt": prompt, "stream": True, **fields}
            answer = await self.call("POST", "/v1/completions", body)
            assert isinstance(answer, EventAnswer)
            assert answer.begin is not None
            found: list[bytes] = []
            answer.begin(Beside(found))
            async for write in answer.events:
                self.pulled += 1
                found.append(write)
            return found

        return asyncio.run(run())

    def events(self, prompt: Any = "ab", **fields: Any) -> list[dict[str, Any]]:
        """The events of a stream without the last one, which is checked."""
        *events, last = b"".join(self.writes(prompt, **fields)).split(b"\n\n")[:-1]
        assert last == b"data: [DONE]"
        return [json.loads(event.removeprefix(b"data: ")) for event in events]


@pytest.fixture
def service_over() -> Callable[..., Service]:
    """A service whose engine has the given settings."""

    def build(*args: Any, model_names: tuple[str, ...] = ("fake", "other"), **more: Any) -> Service:
        return Service(FakeAsyncEngine(*args, **more), model_names)

    return build


@pytest.fixture
def service(service_over: Callable[..., Service]) -> Service:
    """One that answers every prompt with the same text, of which a letter has two bytes."""
    return service_over(lambda request: "naïve fox")
