"""How are rules written for xgrammar?

Its EBNF, with everything but printable ASCII as escapes. Classes are written as ranges without
negation: its own negation would let in the bytes of surrogates, which are no characters.
"""

from __future__ import annotations

from deepinfer_grammar.regular.charset import CharSet
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


def as_xgrammar(grammar: RuleSet) -> str:
    """The text of a pruned grammar; its start rule is called ``start``."""
    lines = [f"{name} ::= {_written(rule)}" for name, rule in grammar.rules.items()]
    return "\n".join(lines) + "\n"


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
            inner = f"({_written(part)})" if isinstance(part, Text) else _bracketed(part)
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
    special = ']-^\\["'
    pieces = []
    for low, high in chars:
        piece = _letter(chr(low), special)
        if high > low:
            piece += "-" + _letter(chr(high), special)
        pieces.append(piece)
    return "[" + "".join(pieces) + "]"


def _letter(letter: str, special: str) -> str:
    code = ord(letter)
    if letter in special or (not 32 < code < 127 and letter != " "):
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return letter
