"""How do responses and events become data, and text again?

Each Responses stream holds its whole response three times, so this is done by ``msgspec``, which
takes a tenth of the time that the standard library takes.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["json_data", "json_text"]


def json_data(text: str) -> Any:
    """The data of a JSON text."""
    return msgspec.json.decode(text)


def json_text(value: object) -> str:
    """The compact JSON text of data that came from such a text."""
    return msgspec.json.encode(value).decode()
