"""How is a client of HTTP/1.0 answered, which knows no pieces of a body?

With bytes as they come; the body ends where the connection is closed.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

__all__ = ["leave_unframed"]


class _UntoldLength:
    """Stands for the length of a body that may become as long as it likes."""

    def __lt__(self, size_bytes: int) -> bool:
        return False

    def __isub__(self, size_bytes: int) -> _UntoldLength:
        return self

    def __ne__(self, size_bytes: object) -> bool:
        return False


_UNTOLD: Any = _UntoldLength()


def leave_unframed(cycle: RequestResponseCycle) -> None:
    """Frame nothing of an answer whose client would not understand it.

    Args:
        cycle: of the call, before its application is asked.
    """
    if cycle.scope["http_version"] == "1.0":
        cycle.chunked_encoding = False
        cycle.expected_content_length = _UNTOLD
