"""What does one line of a batch file ask for, and what identifies it?

A line is ``{"custom_id", "method", "url", "body"}``. A line that is no request still gets an
answer, so it has an identity too: a checksum of its bytes. A line without a ``custom_id`` counts
its place in as well, because equal lines may then stand twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from deepinfer_core.engine.checks import shown
from deepinfer_core.errors import RequestError
from deepinfer_core.model.config_reading import unique_keys

__all__ = ["CHAT_URL", "COMPLETIONS_URL", "LINE_ID_PREFIX", "BatchLine", "read_line"]

COMPLETIONS_URL = "/v1/completions"
CHAT_URL = "/v1/chat/completions"
LINE_ID_PREFIX = "batch_req_"

_KEYS = ("custom_id", "method", "url", "body")
_HINT = 'a line is {"custom_id": "1", "method": "POST", "url": "/v1/completions", "body": {...}}'


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLine:
    """One line of the input.

    Attributes:
        number: place in the file, from 1; empty lines are counted.
        line_id: identity, the ``id`` of its answer; equal in every run.
        custom_id: the caller's name of the request; None if the line has none.
        kind: which of the two addresses.
        body: parameters of the request; empty if ``error`` is set.
        error: why the line is no request, or None.
    """

    number: int
    line_id: str
    custom_id: str | None
    kind: Literal["completion", "chat"]
    body: Mapping[str, Any]
    error: RequestError | None = None


def read_line(content: bytes, number: int, *, problem: str = "") -> BatchLine:
    """Read one line; never raises for what stands in it.

    Args:
        content: without its line feed.
        number: place in the file.
        problem: why the content was not even read as a whole; it then becomes the error.
    """
    custom_id: str | None = None
    kind: Literal["completion", "chat"] = "completion"
    body: Mapping[str, Any] = {}
    error: RequestError | None = None
    try:
        if problem:
            raise RequestError(problem)
        found = _object(content)
        custom_id = _custom_id(found)
        kind = _kind(found)
        body = _body(found)
    except RequestError as raised:
        error = RequestError(f"line {number}: {raised.message}", hint=raised.hint)
    return BatchLine(
        number=number,
        line_id=_line_id(content, None if custom_id else number),
        custom_id=custom_id,
        kind=kind,
        body=body,
        error=error,
    )


def _object(content: bytes) -> dict[str, Any]:
    try:
        # As text: of bytes the parser would take other encodings, and a mark in any line.
        found = json.loads(content.decode("utf-8"), object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"this is not JSON: {error}", hint=_HINT) from error
    if not isinstance(found, dict):
        raise RequestError("this is no JSON object", hint=_HINT)
    return found


def _custom_id(found: dict[str, Any]) -> str:
    custom_id = found.get("custom_id")
    if not isinstance(custom_id, str) or not custom_id:
        raise RequestError("custom_id is missing, empty or no text", hint=_HINT)
    return custom_id


def _kind(found: dict[str, Any]) -> Literal["completion", "chat"]:
    if unknown := sorted(found.keys() - set(_KEYS)):
        raise RequestError(f"unknown key {unknown[0]!r}", hint=_HINT)
    if found.get("method") != "POST":
        raise RequestError(f"method is {shown(found.get('method'))}", hint="method must be POST")
    if found.get("url") == COMPLETIONS_URL:
        return "completion"
    if found.get("url") == CHAT_URL:
        return "chat"
    raise RequestError(
        f"url is {shown(found.get('url'))}", hint=f"url must be {COMPLETIONS_URL} or {CHAT_URL}"
    )


def _body(found: dict[str, Any]) -> Mapping[str, Any]:
    body = found.get("body")
    if not isinstance(body, dict):
        raise RequestError("body is missing or no object", hint=_HINT)
    return body


def _line_id(content: bytes, number: int | None) -> str:
    place = b"" if number is None else f"line {number}\n".encode()
    return LINE_ID_PREFIX + hashlib.blake2b(place + content, digest_size=16).hexdigest()
