"""Which byte does each letter of a byte-level vocabulary stand for?

Printable characters of Latin-1 stand for themselves; the other bytes, in order, for the letters
from U+0100 on. Every byte-level BPE vocabulary is written this way.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["BYTE_LETTERS"]

_PLAIN = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = tuple(byte for byte in range(256) if byte not in _PLAIN)

BYTE_LETTERS: Mapping[str, int] = MappingProxyType(
    {chr(byte): byte for byte in _PLAIN}
    | {chr(0x100 + number): byte for number, byte in enumerate(_OTHERS)}
)
"""Byte by letter, all 256."""
