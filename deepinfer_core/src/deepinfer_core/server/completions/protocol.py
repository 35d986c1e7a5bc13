"""Which routes does ``core.completions`` have?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deepinfer_core.engine.checks import shown
from deepinfer_core.errors import RequestError
from deepinfer_core.interfaces.protocol import (
    Endpoint,
    Handle,
    HttpAnswer,
    HttpCall,
    JsonAnswer,
    Protocol,
    ServiceView,
)
from deepinfer_core.plugin import BuildContext
from deepinfer_core.server.completions.calls import CallsInWork
from deepinfer_core.server.completions.cards import Cards
from deepinfer_core.server.completions.completing import Completing
from deepinfer_core.server.completions.plain_text import TextReader
from deepinfer_core.server.completions.schemas import ABORT, COMPLETION, DETOKENIZE, TOKENIZE
from deepinfer_core.server.completions.tokenizing import Tokenizing
from deepinfer_core.server.dialect import OPENAI, json_bytes

__all__ = ["CompletionsProtocol", "build"]


def build(options: None, context: BuildContext) -> CompletionsProtocol:
    """Make the protocol; it has no options."""
    return CompletionsProtocol()


class CompletionsProtocol(Protocol):
    """Text completions, models, tokens, and what describes the service."""

    def endpoints(self, service: ServiceView) -> Sequence[Endpoint]:
        """Its routes; see the interface."""
        texts, in_work = TextReader(service), CallsInWork()
        completing = Completing(service, texts, in_work)
        tokenizing = Tokenizing(service, texts)

        async def abort(call: HttpCall) -> HttpAnswer:
            name = call.body.get("request_id")
            if not isinstance(name, str):
                what = "missing" if name is None else shown(name)
                raise RequestError(
                    f"request_id is {what}", hint="it must be the text that names a call in work"
                )
            aborted = in_work.abort(service.engine, name)
            return JsonAnswer(content=json_bytes({"aborted": aborted}))

        return [
            _post(
                "/v1/completions", completing.handle, COMPLETION, "Go on with texts.",
                "/completions", "/beta/completions", counts=True,
            ),
            _post("/tokenize", tokenizing.tokenize, TOKENIZE, "Tokens of a text or conversation."),
            _post("/detokenize", tokenizing.detokenize, DETOKENIZE, "Text of tokens."),
            _post("/abort", abort, ABORT, "End a request."),
            *_cards(Cards(service), service.model_names),
        ]  # fmt: skip


def _cards(cards: Cards, names: Sequence[str]) -> list[Endpoint]:
    def card(name: str, handle: Handle) -> Endpoint:
        path = f"/models/{name}"
        return _get(f"/v1{path}", handle, "One of them.", path, f"/anthropic/v1{path}")

    return [
        _get("/v1/models", cards.models, "Names of the model.", "/models", "/anthropic/v1/models"),
        card("{model}", cards.model),
        # A name in a path is one segment, but those of public repositories have two.
        *[card(name, cards.model_of(name)) for name in names if "/" in name],
        _get("/server_info", cards.server_info, "Model, components, sizes and versions."),
        _get("/version", cards.version, "Version of the software."),
    ]


def _get(path: str, handle: Handle, summary: str, *aliases: str) -> Endpoint:
    return Endpoint(
        method="GET", path=path, handle=handle, dialect=OPENAI, summary=summary, aliases=aliases
    )


def _post(
    path: str,
    handle: Handle,
    body: Mapping[str, Any],
    summary: str,
    *aliases: str,
    counts: bool = False,
) -> Endpoint:
    return Endpoint(
        method="POST",
        path=path,
        handle=handle,
        dialect=OPENAI,
        summary=summary,
        body=body,
        aliases=aliases,
        counts=counts,
    )
