"""Which field of a body is it that deepseek-recipe cannot read, and what should it be?

The library says what it found and what it expected, in words of its own language, and not where. So
the fields are shown to it again, one at a time: the one of which it says the same is to blame.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from typing import Any

__all__ = ["blamed"]

_MOST = 256
"""Fields, and items of a list, that are shown to it again."""

_OTHERS: dict[str, Any] = {"model": "", "messages": [], "input": "", "max_tokens": 1}
"""Fields without which it reads no body; each is one that it can read."""

_OPENING = "invalid request body: "
_MISSING = re.compile(r"missing field `(\w+)`")
_WORDS = (
    (re.compile(r"\bf(32|64)\b"), "a number"),
    (re.compile(r"\bu(8|16|32|64|size)\b"), "a whole number of its range"),
    (re.compile(r"\bstring or map\b"), "a word or an object"),
    (re.compile(r"\b(struct|internally tagged enum) \w+"), "an object"),
    (re.compile(r"\bvariant identifier\b"), "a word"),
    (re.compile(r"\ba sequence\b"), "a list"),
)
"""What it calls the types that it expects, and what they are in JSON."""

Kind = Callable[[dict[str, Any]], Any]


def blamed(kind: Kind, body: dict[str, Any], reason: str) -> tuple[str | None, str]:
    """What a client is told of a body that cannot be read.

    Args:
        kind: of request; raises what it cannot read.
        body: the body.
        reason: what it raised of it.

    Returns:
        The place of the field, None if it cannot be told, and the reason with that place in it.
    """
    place = _place(kind, body, reason)
    # What was found is repeated from the body and stands first.
    found, expected, wanted = reason.removeprefix(_OPENING).rpartition("expected ")
    for pattern, better in _WORDS:
        wanted = pattern.sub(better, wanted)
    words = f"{found}{expected}{wanted}"
    return place, words if place is None else f"{place}: {words}"


def _place(kind: Kind, body: dict[str, Any], reason: str) -> str | None:
    for name, value in islice(body.items(), _MOST):
        if _reason(kind, name, value) != reason:
            continue
        if isinstance(value, list):
            return _item(kind, name, value, reason)
        return name
    missing = _MISSING.search(reason)
    return missing[1] if missing and missing[1] not in body else None


def _item(kind: Kind, name: str, items: list[Any], reason: str) -> str:
    """A place in a list, or the list."""
    for number, item in enumerate(islice(items, _MOST)):
        if _reason(kind, name, [item]) != reason:
            continue
        inner = item if isinstance(item, dict) and not _MISSING.search(reason) else {}
        # Without the field nothing is wrong, or just that it is not there.
        found = [
            key
            for key in islice(inner, _MOST)
            if _reason(kind, name, [{one: inner[one] for one in inner if one != key}])
            in ("", f"{_OPENING}missing field `{key}`")
        ]
        return f"{name}[{number}]" + (f".{found[0]}" if len(found) == 1 else "")
    return name


def _reason(kind: Kind, name: str, value: Any) -> str:
    """What is said of a field among others that can be read; empty: nothing."""
    try:
        kind({**_OTHERS, name: value})
    except (ValueError, TypeError) as error:
        return str(error)
    return ""
