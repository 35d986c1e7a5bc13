"""What value does a text stand for, in an environment variable or after ``--set``?"""

from __future__ import annotations

import tomllib
from typing import Any

from deepinfer_core.config.schema import Path, takes_nothing, takes_text_only

__all__ = ["parse_text"]

_NOTHING = frozenset({"none", "null"})


def parse_text(path: Path, text: str) -> Any:
    """Read a text as the key at ``path`` takes it.

    A text that is a TOML value is that value, except where the key holds text only; anything else
    is the text itself, so that names and paths need no quotes. ``none`` is no value where the key
    allows that.
    """
    if takes_nothing(path) and text.strip().lower() in _NOTHING:
        return None
    try:
        value = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        # No TOML, or more digits or brackets than Python reads: the key's own type decides.
        return text
    # A text with a line break could define further keys; a date is text here.
    if set(value) != {"value"} or not isinstance(value["value"], str | int | float | list | dict):
        return text
    found = value["value"]
    return found if isinstance(found, str) or not takes_text_only(path) else text
