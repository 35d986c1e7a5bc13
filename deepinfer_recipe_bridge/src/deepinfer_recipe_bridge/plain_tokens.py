"""Which tokens only make a text longer, whatever text an answer is at?

Those whose bytes are characters of their own, can be printed, and begin no markup: within reasoning
or an answer the library makes one event of such a token, which holds the text of that token. What
ends lines is none of them, since a call of a tool may follow it, nor what stands for bytes that are
no text, behind which the library waits for the rest of a character.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import msgspec
from deepinfer_core.engine.byte_letters import BYTE_LETTERS

__all__ = ["plain_tokens"]


_HELD = frozenset("<\ufffd")


def plain_tokens(spec: dict[str, Any], others: Container[int]) -> dict[int, bytes]:
    """Texts of such tokens as JSON spells them, without quotes.

    Args:
        spec: JSON data of a ``tokenizer.json``; of one that is not byte-level no token is plain.
        others: tokens that are none.
    """
    if (spec.get("decoder") or {}).get("type") != "ByteLevel":
        return {}
    found: dict[int, bytes] = {}
    for letters, token in spec["model"]["vocab"].items():
        try:
            text = bytes([BYTE_LETTERS[letter] for letter in letters]).decode()
        except (KeyError, UnicodeDecodeError):
            continue
        if text.isprintable() and not _HELD.intersection(text) and text and token not in others:
            found[token] = msgspec.json.encode(text)[1:-1]
    return found
