"""Which token ids does a text such as ``0..3,7`` name?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

__all__ = ["TokenIds"]

_SPAN = re.compile(r"\s*(\d+)\s*(?:\.\.\s*(\d+)\s*)?")
_MAX_BLACKLIST_TOKENS = 1 << 20
"""More ids than any vocabulary has; a longer range is a slip of the keyboard."""


def _token_ids(value: object) -> tuple[int, ...]:
    """Ids, or a text such as ``0..3,7``; both ends of a range are banned."""
    parts = value.split(",") if isinstance(value, str) else value
    if isinstance(parts, int) and not isinstance(parts, bool):
        parts = [parts]
    if not isinstance(parts, list | tuple):
        raise ValueError('expected token ids, or a text such as "0..3,7"')
    return tuple(sorted({token for part in parts for token in _span(part)}))


def _span(part: object) -> Iterator[int]:
    if isinstance(part, str) and not part.strip():
        return iter(())
    match = None if isinstance(part, bool) else _SPAN.fullmatch(str(part))
    if match is None:
        raise ValueError(f"{part!r} is neither a token id nor a range such as 0..3")
    first, last = int(match[1]), int(match[2] or match[1])
    if not first <= last < first + _MAX_BLACKLIST_TOKENS:
        raise ValueError(f"{part!r} is not a range of token ids")
    return iter(range(first, last + 1))


TokenIds = Annotated[
    tuple[int, ...],
    BeforeValidator(_token_ids),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": {"type": "integer", "minimum": 0}},
                {"type": "string"},
            ]
        }
    ),
]
"""Ids in rising order, each once; given as a list of ids and ranges, or as one text."""
