"""How are rules written for llguidance?

Its Lark dialect, with every terminal one character long. Longer terminals would be read greedily:
of two that begin alike, the shorter one would be lost. One character decides at once, and where
two terminals match it, both are kept.
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

__all__ = ["as_lark"]

_ANY_SPLIT = '%llguidance {"no_forcing": true}\n'
"""Text that has no alternative may be split into any tokens, not only as a tokenizer would."""


def as_lark(grammar: RuleSet) -> str:
    """The text of a pruned grammar; rules are numbered, since Lark has its own ideas of names."""
    names = {name: f"r{number}" for number, name in enumerate(grammar.rules)}
    names[grammar.start] = "start"
    lines = [f"{names[name]}: {_written(rule, names)}" for name, rule in grammar.rules.items()]
    return _ANY_SPLIT + "\n".join(lines) + "\n"


def _written(expression: Expression, names: dict[str, str]) -> str:
    match expression:
        case Text(text):
            return " ".join(_class(((ord(letter), ord(letter)),)) for letter in text)
        case Class(chars):
            return _class(chars)
        case Control(token_id):
            return f"<[{token_id}]>"
        case Reference(name):
            return names[name]
        case Sequence(parts):
            return " ".join(_bracketed(part, names) for part in parts) if parts else '""'
        case Choice(parts):
            return " | ".join(_bracketed(part, names) for part in parts)
        case Repeat(part, low, high):
            inner = f"({_written(part, names)})"
            if high is None and low <= 1:
                return inner + "*+"[low]
            return f"{inner}{{{low},{'' if high is None else high}}}"


def _bracketed(expression: Expression, names: dict[str, str]) -> str:
    text = _written(expression, names)
    return f"({text})" if isinstance(expression, Choice) else text


def _class(chars: CharSet) -> str:
    pieces = []
    for low, high in chars:
        pieces.append(_letter(low) + (f"-{_letter(high)}" if high > low else ""))
    return "/[" + "".join(pieces) + "]/"


def _letter(code: int) -> str:
    letter = chr(code)
    return letter if letter.isascii() and letter.isalnum() else f"\\u{{{code:x}}}"
