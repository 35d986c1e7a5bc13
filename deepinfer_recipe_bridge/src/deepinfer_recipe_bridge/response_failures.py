"""How does a stream of Responses events end when something failed?

By ``response.failed``, which shows the response and has the next number of the stream. So both are
remembered while a stream is open; of one that was cut, by its client or by the server, only until a
few others were cut, as nobody says which of the two it was. What a request may make long is left
out: it was sent with the first event.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from deepinfer_core.errors import DeepInferError
from deepinfer_core.interfaces.protocol import Dialect

from deepinfer_recipe_bridge.dialects import (
    error_text,
    event_bytes,
    openai_error,
    openai_error_body,
)
from deepinfer_recipe_bridge.json_text import json_text

__all__ = ["OpenResponse", "OpenResponses"]

_MOST_CUT = 64
_EMPTIED: dict[str, Any] = {"instructions": None, "tools": [], "tool_choice": "auto"}
_PLAIN_TEXT = {"format": {"type": "text"}, "verbosity": "medium"}


@dataclass(slots=True)
class OpenResponse:
    """A stream that has begun and not ended.

    Attributes:
        response: as it began.
        next_number: of the next event.
    """

    response: dict[str, Any]
    next_number: int = 0


class OpenResponses:
    """Streams that have begun and not ended."""

    def __init__(self) -> None:
        self._open: dict[str, OpenResponse] = {}
        self._cut: OrderedDict[str, OpenResponse] = OrderedDict()

    @property
    def dialect(self) -> Dialect:
        """Of errors, also of those within such a stream."""
        return Dialect(error_body=openai_error_body, error_event=self._failed)

    def begun(self, request_id: str, response: dict[str, Any]) -> OpenResponse:
        """Remember a stream whose first event is about to be counted.

        Args:
            request_id: of the call.
            response: as that event shows it.
        """
        found = OpenResponse(response | _EMPTIED | {"text": _PLAIN_TEXT})
        self._open[request_id] = found
        return found

    def ended(self, request_id: str) -> None:
        """Forget a stream that came to its end."""
        self._open.pop(request_id, None)

    def cut(self, request_id: str) -> None:
        """A stream came to no end of its own; if it is to be told, it is told soon."""
        found = self._open.pop(request_id, None)
        if found is not None:
            self._cut[request_id] = found
            if len(self._cut) > _MOST_CUT:
                self._cut.popitem(last=False)

    def _failed(self, error: DeepInferError, status: int, request_id: str) -> bytes:
        found = self._cut.pop(request_id, None)
        if found is None:
            shown = openai_error(error, status)
            event = {"type": "error", "sequence_number": 0}
            event |= {key: shown[key] for key in ("code", "message", "param")}
            return event_bytes(json_text(event), "error")
        shown = {"code": _code(status), "message": error_text(error, status)}
        response = found.response | {"status": "failed", "error": shown}
        event = {
            "type": "response.failed",
            "response": response,
            "sequence_number": found.next_number,
        }
        return event_bytes(json_text(event), "response.failed")


def _code(status: int) -> str:
    """One of the words that official clients know."""
    if status == 429:
        return "rate_limit_exceeded"
    return "server_error" if status >= 500 else "invalid_prompt"
