"""Can any token begin a text of a grammar?

What the rules begin with is known before an engine has seen them, and where the grammar says so. A
token may still be too long to fit anywhere: that shows in the first mask.
"""

from __future__ import annotations

from deepinfer_core.interfaces.grammar import GrammarMatcher, GrammarText, GrammarVocabulary

from deepinfer_grammar.ebnf import start_of
from deepinfer_grammar.errors import GrammarFault, SchemaFault, TextFault
from deepinfer_grammar.regular.charset import CharSet, union
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

__all__ = ["check_beginning", "check_first_characters"]

_WHAT = "no token of the vocabulary can begin a text of the grammar"
_SHOWN = 3
"""First characters that a message names."""


def check_first_characters(
    rules: RuleSet, grammar: GrammarText, vocabulary: GrammarVocabulary
) -> None:
    """See whether some token begins as the rules do.

    Raises:
        GrammarFault: none does; with the place in the grammar.
    """
    chars = _first_characters(rules)
    ends = set(vocabulary.end_ids)
    firsts = {piece[0] for i, piece in enumerate(vocabulary.pieces) if piece and i not in ends}
    if chars is None or any(_first_bytes(low, high) & firsts for low, high in chars):
        return
    shown = ", ".join(f"U+{low:04X}" for low, _ in chars[:_SHOWN])
    what = f"{_WHAT}: it begins with {shown}{' or others' if len(chars) > _SHOWN else ''}"
    match grammar.kind:
        case "regex":
            raise TextFault(what, 0)
        case "ebnf":
            raise TextFault(what, start_of(grammar.text, grammar.root))
        case "structural_tag":
            raise SchemaFault(what, "#/format")
    raise SchemaFault(what, "#")


def check_beginning(matcher: GrammarMatcher, vocabulary: GrammarVocabulary) -> None:
    """Look at the first mask.

    Raises:
        GrammarFault: it is empty.
    """
    import numpy as np

    mask_RW = np.zeros((1, vocabulary.words), dtype=np.int32)
    matcher.fill_mask(mask_RW, 0)
    if not mask_RW.any():
        raise GrammarFault(
            f"{_WHAT}, at character 0 of it",
            hint="tokens begin with its first characters, and none goes on as it does",
        )


def _first_characters(rules: RuleSet) -> CharSet | None:
    """What a text may begin with, perhaps too much; None: with a control token, or nothing."""
    found: list[CharSet] = []
    waiting, seen = [rules.rules[rules.start]], {rules.start}
    while waiting:
        expression = waiting.pop()
        match expression:
            case Text(text):
                found.append(((ord(text[0]), ord(text[0])),))
            case Class(chars):
                found.append(chars)
            case Control():
                return None
            case Reference(name) if name not in seen:
                seen.add(name)
                waiting.append(rules.rules[name])
            case Choice(parts):
                waiting.extend(parts)
            case Repeat(part):
                waiting.append(part)
            case Sequence(parts):
                sure = [i for i, part in enumerate(parts) if _takes_something(part, rules)]
                waiting.extend(parts[: sure[0] + 1] if sure else parts)
    is_empty = not _takes_something(rules.rules[rules.start], rules)
    return None if is_empty else union(*found)


def _takes_something(expression: Expression, rules: RuleSet, depth: int = 2) -> bool:
    """Whether it certainly does not match the empty text; looks into few rules."""
    match expression:
        case Text() | Class() | Control():
            return True
        case Reference(name):
            return depth > 0 and _takes_something(rules.rules[name], rules, depth - 1)
        case Sequence(parts):
            return any(_takes_something(part, rules, depth) for part in parts)
        case Choice(parts):
            return all(_takes_something(part, rules, depth) for part in parts)
        case Repeat(part, low):
            return low > 0 and _takes_something(part, rules, depth)


def _first_bytes(low: int, high: int) -> set[int]:
    """First bytes of the characters of a range, which leaves out halves of surrogate pairs."""
    ends = [chr(code).encode("utf-8", "surrogatepass")[0] for code in (low, high)]
    return set(range(ends[0], ends[1] + 1))
