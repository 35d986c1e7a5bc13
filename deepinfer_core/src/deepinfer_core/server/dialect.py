"""How do errors look where no protocol says otherwise?

In the form of OpenAI's public interface, which most clients of any protocol can read.
"""

from __future__ import annotations

import msgspec

from deepinfer_core.errors import DeepInferError, UnknownModel
from deepinfer_core.interfaces.protocol import Dialect
from deepinfer_core.server.refusals import unforeseen

__all__ = ["OPENAI", "json_bytes"]

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    408: "timeout_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable_error",
}


def json_bytes(value: object) -> bytes:
    """Compact JSON text of plain data."""
    return msgspec.json.encode(value)


def _body(error: DeepInferError, status: int, request_id: str) -> bytes:
    shown = unforeseen() if status == 500 else error
    return json_bytes(
        {
            "error": {
                "message": str(shown),
                "type": _TYPES.get(status, "invalid_request_error"),
                "param": shown.param if isinstance(shown, UnknownModel) else None,
                "code": shown.code,
            }
        }
    )


def _event(error: DeepInferError, status: int, request_id: str) -> bytes:
    return b"data: " + _body(error, status, request_id) + b"\n\n"


OPENAI = Dialect(error_body=_body, error_event=_event)
