"""Which parts is a structural tag made of? Functions that write each of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

__all__ = [
    "ANY_TEXT",
    "Format",
    "either",
    "json_value",
    "matching",
    "maybe",
    "repeated",
    "sequence",
    "tag_text",
    "text",
    "token",
]

Format = dict[str, Any]

ANY_TEXT: Format = {"type": "any_text"}
"""Any text without control tokens, the empty one included."""


def text(value: str) -> Format:
    """The text itself."""
    return {"type": "const_string", "value": value}


def token(spelling: str) -> Format:
    """One control token, never its spelling in ordinary tokens."""
    return {"type": "token", "token": spelling}


def json_value(schema: Any) -> Format:
    """A JSON text of a schema."""
    return {"type": "json_schema", "json_schema": schema}


def matching(pattern: str) -> Format:
    """A text that a regular expression matches as a whole."""
    return {"type": "regex", "pattern": pattern}


def sequence(*elements: Format) -> Format:
    """One behind the other."""
    return {"type": "sequence", "elements": list(elements)}


def either(elements: Iterable[Format]) -> Format:
    """One of them; at least one is given."""
    found = list(elements)
    return found[0] if len(found) == 1 else {"type": "or", "elements": found}


def maybe(content: Format) -> Format:
    """It, or nothing."""
    return {"type": "optional", "content": content}


def repeated(content: Format, *, at_least_once: bool) -> Format:
    """Any number of it."""
    return {"type": "plus" if at_least_once else "star", "content": content}


def tag_text(content: Format) -> str:
    """The text of a grammar of kind ``structural_tag``."""
    return json.dumps({"type": "structural_tag", "format": content}, ensure_ascii=False)
