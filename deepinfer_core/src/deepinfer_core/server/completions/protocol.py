"""Which routes does ``core.completions`` have?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from deepinfer_core.errors import RequestError
from deepinfer_core.interfaces.protocol import (
    Endpoint,
    HttpAnswer,
    HttpCall,
    JsonAnswer,
    Protocol,
    ServiceView,
)
from deepinfer_core.plugin import BuildContext
from deepinfer_core.server.completions.answers import json_bytes
from deepinfer_core.server.completions.calls import CallsInWork
from deepinfer_core.server.completions.cards import Cards
from deepinfer_core.server.completions.completing import Completing
from deepinfer_core.server.completions.dialect import OPENAI
from deepinfer_core.server.completions.plain_text import TextReader
from deepinfer_core.server.completions.tokenizing import Tokenizing

__all__ = ["CompletionsProtocol", "build"]

Handle = Callable[[HttpCall], Awaitable[HttpAnswer]]


def build(options: None, context: BuildContext) -> CompletionsProtocol:
    """Make the protocol; it has no options."""
    return CompletionsProtocol()


class CompletionsProtocol(Protocol):
    """Text completions, models, tokens, and what describes the service."""

    def endpoints(self, service: ServiceView) -> Sequence[Endpoint]:
        """Its routes; see the interface."""
        texts, in_work, cards = TextReader(service), CallsInWork(), Cards(service)
        completing = Completing(service, texts, in_work)
        tokenizing = Tokenizing(service, texts)

        async def abort(call: HttpCall) -> HttpAnswer:
            call.notes.protocol = "abort"
            name = call.body.get("request_id")
            if not isinstance(name, str):
                raise RequestError("request_id is missing", hint="give that of a request in work")
            aborted = in_work.abort(service.engine, name)
            return JsonAnswer(content=json_bytes({"request_id": name, "aborted": aborted}))

        def post(path: str, handle: Handle, *aliases: str) -> Endpoint:
            return Endpoint(
                method="POST", path=path, handle=handle, dialect=OPENAI, aliases=aliases
            )

        def get(path: str, handle: Handle, *aliases: str) -> Endpoint:
            return Endpoint(method="GET", path=path, handle=handle, dialect=OPENAI, aliases=aliases)

        card = "/v1/models/{model}"
        return [
            post("/v1/completions", completing.handle, "/completions", "/beta/completions"),
            post("/tokenize", tokenizing.tokenize),
            post("/detokenize", tokenizing.detokenize),
            post("/abort", abort),
            get("/v1/models", cards.models, "/models", "/anthropic/v1/models"),
            get(card, cards.model, card.removeprefix("/v1"), f"/anthropic{card}"),
            get("/server_info", cards.server_info),
            get("/version", cards.version),
        ]
