"""How does each protocol say that something failed?

Two forms exist: OpenAI's, for Chat Completions and Responses, and Anthropic's, for Messages.
"""

from __future__ import annotations

import json
from typing import Any

from deepinfer_core.errors import DeepInferError, UnknownModel
from deepinfer_core.interfaces.protocol import Dialect

from deepinfer_recipe_bridge.errors import BadRequest, shortened

__all__ = [
    "CHAT_DIALECT",
    "MESSAGES_DIALECT",
    "error_text",
    "event_bytes",
    "openai_error",
    "openai_error_body",
]

_OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    408: "timeout_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable_error",
}
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
}
_UNFORESEEN = "The server had an error while processing your request"


def error_text(error: DeepInferError, status: int) -> str:
    """What a client may read: nothing of the inside where nothing was wrong with the request."""
    return _UNFORESEEN if status == 500 else shortened(str(error))


def openai_error(error: DeepInferError, status: int) -> dict[str, Any]:
    """The object under ``error`` in OpenAI's form."""
    return {
        "message": error_text(error, status),
        "type": _OPENAI_TYPES.get(status, "invalid_request_error"),
        "param": error.param if isinstance(error, BadRequest | UnknownModel) else None,
        "code": "internal_error" if status == 500 else error.code,
    }


def openai_error_body(error: DeepInferError, status: int, request_id: str) -> bytes:
    """The body of a response that says what failed; the id is in its headers."""
    return _json({"error": openai_error(error, status)})


def event_bytes(data: str, name: str | None = None) -> bytes:
    """One server-sent event; JSON text has no line ends."""
    if name is None:
        return f"data: {data}\n\n".encode()
    return f"event: {name}\ndata: {data}\n\n".encode()


def _openai_event(error: DeepInferError, status: int, request_id: str) -> bytes:
    return event_bytes(openai_error_body(error, status, request_id).decode())


def _anthropic_body(error: DeepInferError, status: int, request_id: str) -> bytes:
    kind = _ANTHROPIC_TYPES.get(status, "invalid_request_error")
    shown = {"type": kind, "message": error_text(error, status)}
    return _json({"type": "error", "error": shown, "request_id": request_id})


def _anthropic_event(error: DeepInferError, status: int, request_id: str) -> bytes:
    return event_bytes(_anthropic_body(error, status, request_id).decode(), "error")


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", errors="replace"
    )


CHAT_DIALECT = Dialect(error_body=openai_error_body, error_event=_openai_event)

MESSAGES_DIALECT = Dialect(
    error_body=_anthropic_body,
    error_event=_anthropic_event,
    keep_alive=event_bytes('{"type":"ping"}', "ping"),
    prefixes=("/v1/messages", "/anthropic/"),
)
