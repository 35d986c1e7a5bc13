"""How are sets of Unicode characters written down and combined?

A set is a tuple of inclusive ranges of code points, sorted, disjoint and not touching. Surrogates
belong to no set: they are not characters, and no UTF-8 text holds one.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import cache

__all__ = [
    "ANY",
    "LAST",
    "CharSet",
    "complement",
    "contains",
    "intersect",
    "of_text",
    "unicode_category",
    "union",
]

CharSet = tuple[tuple[int, int], ...]

LAST = 0x10FFFF
ANY: CharSet = ((0, 0xD7FF), (0xE000, LAST))


def union(*sets: Iterable[tuple[int, int]]) -> CharSet:
    """All characters of any of the sets; the ranges given may overlap and stand in any order."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(pair for one in sets for pair in one):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return _without_surrogates(merged)


def _without_surrogates(ranges: list[tuple[int, int]]) -> CharSet:
    if not any(low <= 0xDFFF and high >= 0xD800 for low, high in ranges):
        return tuple(ranges)
    kept: list[tuple[int, int]] = []
    for low, high in ranges:
        if low < 0xD800:
            kept.append((low, min(high, 0xD7FF)))
        if high > 0xDFFF:
            kept.append((max(low, 0xE000), high))
    return tuple(kept)


def complement(chars: CharSet) -> CharSet:
    """All characters that are not in the set."""
    found: list[tuple[int, int]] = []
    start = 0
    for low, high in chars:
        if low > start:
            found.append((start, low - 1))
        start = high + 1
    if start <= LAST:
        found.append((start, LAST))
    return union(found)


def intersect(first: CharSet, second: CharSet) -> CharSet:
    """Characters of both sets."""
    found: list[tuple[int, int]] = []
    i = j = 0
    while i < len(first) and j < len(second):
        low = max(first[i][0], second[j][0])
        high = min(first[i][1], second[j][1])
        if low <= high:
            found.append((low, high))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def contains(chars: CharSet, code: int) -> bool:
    """Whether a code point is in the set."""
    return any(low <= code <= high for low, high in chars)


def of_text(text: str) -> CharSet:
    """The characters of a text."""
    return union([(ord(letter), ord(letter)) for letter in text])


@cache
def _category_table() -> dict[str, CharSet]:
    """Ranges of each general category, by its two letters."""
    found: dict[str, list[tuple[int, int]]] = {}
    previous, start = "", 0
    for code in range(LAST + 2):
        name = unicodedata.category(chr(code)) if code <= LAST else ""
        if name != previous:
            if previous:
                found.setdefault(previous, []).append((start, code - 1))
            previous, start = name, code
    return {name: union(ranges) for name, ranges in found.items()}


def unicode_category(name: str) -> CharSet | None:
    """Characters of a general category (``Lu``) or of a group of them (``L``); None if unknown."""
    table = _category_table()
    if name == "LC":
        name_sets = [table[key] for key in ("Lu", "Ll", "Lt")]
    else:
        name_sets = [chars for key, chars in table.items() if key == name or key[0] == name]
    return union(*name_sets) if name_sets else None
