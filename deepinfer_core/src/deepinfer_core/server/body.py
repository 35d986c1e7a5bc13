"""What does the body of a request say, and is it small, timely and plain enough to be read?"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from typing import Any

import msgspec

from deepinfer_core.errors import RequestError
from deepinfer_core.server.body_values import MOST_VALUES, check_values, too_many_values
from deepinfer_core.server.refusals import Refused

__all__ = ["ClientGone", "Receive", "check_type", "has_body", "parse_object", "read_body"]

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
"""Gives the next message of a client, as ASGI says."""

_DEEPEST = 128
_WHOLE_BODY = 10
"""How many times the wait for one piece the whole body may take."""


class ClientGone(Exception):
    """The client went away; nobody reads an answer."""


def check_type(headers: Mapping[bytes, bytes]) -> None:
    """Take JSON only; a form of a strange page can be sent in other types without being asked.

    Raises:
        Refused: 415.
    """
    given = headers.get(b"content-type", b"").decode("latin-1")
    kind, _, rest = given.partition(";")
    charset = rest.strip().lower().removeprefix("charset=").strip('"')
    if kind.strip().lower() != "application/json" or charset not in ("", "utf-8", "utf8"):
        raise _type_refused("the body must be application/json in UTF-8")
    if headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
        raise _type_refused("the body must not be compressed")


def has_body(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a body follows the headers."""
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"


async def read_body(
    receive: Receive,
    headers: Mapping[bytes, bytes],
    *,
    max_bytes: int,
    timeout_s: float,
    grown: Callable[[int], None] = lambda size_bytes: None,
) -> bytes:
    """All of a body.

    Args:
        receive: gives its pieces.
        headers: by names in lower case.
        max_bytes: more are refused, if possible before any is read.
        timeout_s: between two pieces; ten times as long for all of them.
        grown: told behind each piece how much there is; what it raises ends the reading.

    Raises:
        Refused: 413 or 408.
        ClientGone: the client went away.
    """
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length) > max_bytes:
        raise _too_large(max_bytes)
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(timeout_s * _WHOLE_BODY):
            while True:
                async with asyncio.timeout(timeout_s):
                    message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                pieces.append(message.get("body", b""))
                size += len(pieces[-1])
                if size > max_bytes:
                    raise _too_large(max_bytes)
                grown(size)
                if not message.get("more_body", False):
                    return b"".join(pieces)
    except TimeoutError:
        raise Refused(
            408, "body_too_slow", f"no more of the body came within {timeout_s:g} s"
        ) from None


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body.

    Raises:
        RequestError: it is no JSON, no object, has too many values, or is nested too deeply. The
            message repeats none of it.
    """
    check_values(body)
    try:
        found = msgspec.json.decode(body)
    except ValueError as error:
        raise RequestError(f"the body is no JSON: {error}") from None
    except RecursionError:
        raise _too_deep() from None
    if not isinstance(found, dict):
        raise RequestError("the body is no JSON object", hint="send {...}")
    brackets = body.count(b"{") + body.count(b"[")
    # No text with fewer of these signs is deeper, or has more values.
    if brackets > _DEEPEST or brackets + body.count(b",") > MOST_VALUES:
        _check_shape(found)
    return found


def _check_shape(body: dict[str, Any]) -> None:
    level: list[Any] = [body]
    values = 0
    for _ in range(_DEEPEST):
        values += sum(map(_values, level))
        if values > MOST_VALUES:
            raise too_many_values()
        level = [item for holder in level for item in _items(holder)]
        if not level:
            return
    raise _too_deep()


def _values(holder: dict[str, Any] | list[Any]) -> int:
    if isinstance(holder, dict):
        return len(holder)
    kinds = Counter(map(type, holder))
    return len(holder) - kinds[int] - kinds[float]


def _items(holder: dict[str, Any] | list[Any]) -> Iterator[Any]:
    held = holder.values() if isinstance(holder, dict) else holder
    return (item for item in held if isinstance(item, dict | list))


def _too_deep() -> RequestError:
    return RequestError(f"the body is nested more than {_DEEPEST} levels deep")


def _too_large(max_bytes: int) -> Refused:
    return Refused(
        413, "request_too_large", f"the body has more than {max_bytes} bytes, the most that is read"
    )


def _type_refused(message: str) -> Refused:
    return Refused(
        415, "unsupported_media_type", message, hint="send content-type: application/json"
    )
