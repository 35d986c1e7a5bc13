"""For whom is a request made? Requests of different users share no cached prefix.

A protocol says it in a field of its own; beside the label of the key it decides the cache salt.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from deepinfer_recipe_bridge.errors import BadRequest

__all__ = ["LONGEST_SALT", "MAX_USER_BYTES", "cache_salt", "user_of"]

MAX_USER_BYTES = 512
LONGEST_SALT = 256
"""Characters that an engine takes."""


def user_of(body: dict[str, Any], *fields: str) -> str:
    """The first of some fields that is set; ``metadata.user_id`` is one in ``metadata``.

    Raises:
        BadRequest: it is no text, or too long.
    """
    for field in fields:
        value: Any = body
        for key in field.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if value is None:
            continue
        if not isinstance(value, str):
            raise BadRequest(f"{field} must be a text", param=field)
        size = len(value.encode("utf-8", errors="surrogatepass"))
        if size > MAX_USER_BYTES:
            raise BadRequest(
                f"{field} has {size} bytes, at most {MAX_USER_BYTES} are taken", param=field
            )
        return value
    return ""


def cache_salt(key_label: str, user: str) -> str:
    """A text that is different for different pairs; empty where nothing tells callers apart.

    The pair as JSON; a longer one than a salt may be is its SHA-256, in hexadecimal digits.
    """
    if not (key_label or user):
        return ""
    pair = json.dumps([key_label, user])
    if len(pair) <= LONGEST_SALT:
        return pair
    return hashlib.sha256(pair.encode("ascii")).hexdigest()
