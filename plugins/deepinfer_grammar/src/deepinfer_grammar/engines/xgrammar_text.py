"""How are rules written for xgrammar?

Its EBNF, with everything but printable ASCII as escapes.
"""

from __future__ import annotations

from deepinfer_grammar.regular.charset import LAST, CharSet, complement
from deepinfer_grammar.rules import (
    Choice,
    Class,
    Control,
    Expression,
    Reference,
    Repeat,
    RuleSet,
    Sequence,
    Text,
)

__all__ = ["as_xgrammar"]

SURROGATES = (0xD800, 0xDFFF)
"""Half characters: UTF-8 has no bytes for them, and xgrammar would make some up."""

_SPECIAL = ']-^\\["'


def as_xgrammar(grammar: RuleSet) -> str:
    """The text of a pruned grammar; its start rule is called ``start``."""
    lines = [
        f"{name} ::= {_written(rule)}{_lookahead(grammar.followed.get(name))}"
        for name, rule in grammar.rules.items()
    ]
    return "\n".join(lines) + "\n"


def _lookahead(followed: Expression | None) -> str:
    """With it, xgrammar knows beforehand of most tokens that pass the end of a rule."""
    return "" if followed is None else f" (=({_written(followed)}))"


def _written(expression: Expression) -> str:
    match expression:
        case Text(text):
            return '"' + "".join(_letter(letter, '"\\') for letter in text) + '"'
        case Class(chars):
            return _class(chars)
        case Control(token_id):
            return f"Token({token_id})"
        case Reference(name):
            return name
        case Sequence(parts):
            return " ".join(_bracketed(part) for part in parts) if parts else '""'
        case Choice(parts):
            return " | ".join(_bracketed(part) for part in parts)
        case Repeat(part, low, high):
            is_bare = not isinstance(part, Text | Repeat)
            inner = _bracketed(part) if is_bare else f"({_written(part)})"
            if high is None and low <= 1:
                return inner + "*+"[low]
            return f"{inner}{{{low},{'' if high is None else high}}}"


def _bracketed(expression: Expression) -> str:
    text = _written(expression)
    if isinstance(expression, Choice) or (
        isinstance(expression, Sequence) and len(expression.parts) > 1
    ):
        return f"({text})"
    return text


def _class(chars: CharSet) -> str:
    """A class that ends with the last character is written by what it leaves out.

    It is the same class, and one that xgrammar can count; surrogates must be left out by name.
    """
    if chars[-1][1] == LAST:
        rest = [*complement(chars), SURROGATES]
        return "[^" + "".join(_range(low, high) for low, high in sorted(rest)) + "]"
    return "[" + "".join(_range(low, high) for low, high in chars) + "]"


def _range(low: int, high: int) -> str:
    first = _letter(chr(low), _SPECIAL)
    return first if high == low else f"{first}-{_letter(chr(high), _SPECIAL)}"


def _letter(letter: str, special: str) -> str:
    code = ord(letter)
    if letter in special or (not 32 < code < 127 and letter != " "):
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return letter
