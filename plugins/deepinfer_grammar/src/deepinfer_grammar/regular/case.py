"""Which characters differ only in case?

Libraries fold case differently: by ASCII letters, by Unicode's simple case folding (ECMA-262, RE2,
Rust), or as Python's ``re`` does, which also takes the dotless and the dotted i for an i. A set is
folded as all of them do, or as any of them does: the latter is for what is shut out.
"""

from __future__ import annotations

from functools import cache

from deepinfer_grammar.regular.charset import LAST, CharSet, contains, intersect, union

__all__ = ["folded_by_all", "folded_by_any"]

_ASCII: CharSet = ((0, 127),)
_TURKISH = (0x130, 0x131)
"""I with a dot and i without one: Python's ``re`` folds them to i, simple case folding does not."""
_DISPUTED = (*_TURKISH, 0x390, 0x1FD3, 0x3B0, 0x1FE3, 0xFB05, 0xFB06)
"""These and pairs of equal letters that only Unicode 15.1 folds."""


@cache
def _classes() -> dict[int, tuple[int, ...]]:
    """Each character that some library folds, with all that are folded like it, itself included."""
    key: dict[str, str] = {}

    def root(text: str) -> str:
        while key.get(text, text) != text:
            text = key[text]
        return text

    cased = []
    for code in range(LAST + 1):
        letter = chr(code)
        others = {letter.lower(), letter.upper(), letter.title(), letter.casefold()}
        if code in _TURKISH:
            others = {"i"}
        if others != {letter}:
            cased.append(letter)
            folded = letter.casefold() if code not in _TURKISH else "i"
            for other in (letter, *(one for one in others if len(one) == 1)):
                key[root(other)] = root(folded)
    found: dict[str, list[int]] = {}
    for letter in cased:
        found.setdefault(root(letter), []).append(ord(letter))
    return {code: tuple(members) for members in found.values() for code in members}


def folded_by_any(chars: CharSet) -> CharSet:
    """The set with each character that some library takes for one of it where case is ignored."""
    extra = {
        other for code, members in _classes().items() if contains(chars, code) for other in members
    }
    return union(chars, ((code, code) for code in extra))


def folded_by_all(chars: CharSet) -> CharSet:
    """The set with those characters that every library takes for one of it where case is ignored.

    A set of ASCII characters may be read without Unicode.
    """
    is_ascii = intersect(chars, _ASCII) == chars
    extra = {
        other
        for code, members in _classes().items()
        if code not in _DISPUTED and contains(chars, code)
        for other in members
        if other not in _DISPUTED and (other < 128 or not is_ascii)
    }
    return union(chars, ((code, code) for code in extra))
