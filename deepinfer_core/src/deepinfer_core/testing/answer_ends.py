"""Did a client get all of an answer, an error that says so, or neither?

For the four protocols, as a client sees it that reads HTTP as it is written and judges by the last
event of a stream.
"""

from __future__ import annotations

import json
from http.client import HTTPException, HTTPResponse
from io import BytesIO
from typing import Any, Literal

__all__ = ["Ending", "ending_of"]

Ending = Literal["whole", "error", "cut"]

_LAST_NAMES = {"response.completed", "response.incomplete", "message_stop"}
_ERROR_NAMES = {"response.failed", "error"}


class _Received:
    """Bytes in place of a socket."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def makefile(self, mode: str) -> BytesIO:
        return BytesIO(self._content)


def ending_of(answer: bytes) -> Ending:
    """How an answer ended.

    Args:
        answer: all bytes of a connection that was closed behind it.

    Returns:
        ``whole``; ``error`` if it says that it is none, by a 503 or by the last event of a stream;
        ``cut`` if it ends in its midst, or says nothing at all.
    """
    response = HTTPResponse(_Received(answer))  # type: ignore[arg-type]
    try:
        response.begin()
        body = response.read()
    except (HTTPException, OSError):
        return "cut"
    if response.status == 503:
        return "error" if "error" in json.loads(body) else "cut"
    if response.status != 200:
        return "cut"
    if not response.headers.get("content-type", "").startswith("text/event-stream"):
        return "whole" if body else "cut"
    return _ending_of_stream(body.decode())


def _ending_of_stream(text: str) -> Ending:
    *events, behind = text.split("\n\n")
    if behind or not events:
        return "cut"
    lines = dict(line.split(": ", 1) for line in events[-1].split("\n"))
    name, data = lines.get("event"), lines["data"]
    if data == "[DONE]" or name in _LAST_NAMES:
        return "whole"
    found: Any = json.loads(data)
    return "error" if name in _ERROR_NAMES or "error" in found else "cut"
