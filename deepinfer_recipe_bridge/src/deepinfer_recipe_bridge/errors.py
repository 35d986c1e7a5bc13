"""Which errors does a protocol raise beside those of the core?"""

from __future__ import annotations

import json
from typing import Any

from deepinfer_core.errors import RequestError

__all__ = ["BadRequest", "UnsupportedGrammar", "shortened", "with_reason"]

_LONGEST = 1000
"""Characters of a message that may quote the request."""


class BadRequest(RequestError):
    """A request is refused, and the body says which of its fields and why.

    Args:
        message: what is wrong.
        hint: what to do about it.
        param: the field, as the protocol names it.
        code: stable word for programs.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        param: str | None = None,
        code: str = "invalid_request_error",
    ) -> None:
        super().__init__(message, hint=hint)
        self.param = param
        self.code = code


class UnsupportedGrammar(BadRequest):
    """The output was to have a form that cannot be enforced."""

    def __init__(self, message: str, *, hint: str = "", param: str | None = None) -> None:
        super().__init__(message, hint=hint, param=param, code="unsupported_grammar")


def with_reason(body: str) -> BadRequest:
    """The error that a body of deepseek-recipe speaks of."""
    try:
        found: dict[str, Any] = json.loads(body)["error"]
        return BadRequest(
            str(found["message"]),
            param=found.get("param"),
            code=str(found.get("code") or "invalid_request_error"),
        )
    except (ValueError, KeyError, TypeError):
        return BadRequest(body)


def shortened(text: str) -> str:
    """At most a thousand characters of it."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
