"""How does this protocol say that something failed?

In the form of OpenAI's public interface. What failed within the engine is not told to clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepinfer_core.interfaces.protocol import Dialect
from deepinfer_core.server.completions.answers import event, json_bytes

if TYPE_CHECKING:
    from deepinfer_core.errors import DeepInferError

__all__ = ["OPENAI"]

_TYPES = {429: "rate_limit_error", 500: "server_error", 503: "service_unavailable_error"}
_UNFORESEEN = "the server could not answer this request"


def _shown(error: DeepInferError, status: int) -> dict[str, object]:
    return {
        "error": {
            "message": _UNFORESEEN if status == 500 else str(error),
            "type": _TYPES.get(status, "invalid_request_error"),
            "param": None,
            "code": "internal_error" if status == 500 else error.code,
        }
    }


def _body(error: DeepInferError, status: int, request_id: str) -> bytes:
    return json_bytes(_shown(error, status))


def _event(error: DeepInferError, status: int, request_id: str) -> bytes:
    return event(_shown(error, status))


OPENAI = Dialect(error_body=_body, error_event=_event)
"""Errors of all endpoints of this protocol."""
