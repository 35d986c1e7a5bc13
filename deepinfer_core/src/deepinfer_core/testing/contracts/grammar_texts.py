"""Which grammars does the suite compile, and which texts belong to them?

The vocabulary is made here: every single byte, pieces of several characters, pieces that split a
character, control tokens without text, an id beyond the tokenizer, and two end tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from deepinfer_core.interfaces.grammar import (
    CompiledGrammar,
    GrammarMatcher,
    GrammarText,
    GrammarVocabulary,
)

__all__ = [
    "FAULTS",
    "GRAMMAR_VOCABULARY",
    "TEXTS",
    "UNSATISFIABLE",
    "allowed",
    "encoded",
    "mask_bits",
    "produces",
]

_WORDS = ("ab", "abc", "{", '{"', '":', ", ", "true", "null", "12", "é", "\U0001f600", "a b", '"}')

GRAMMAR_VOCABULARY = GrammarVocabulary(
    pieces=(
        *(bytes([byte]) for byte in range(256)),
        *(word.encode() for word in _WORDS),
        "é".encode()[:1] + b"",
        b"b\xc3",
        b"",  # <call>
        b"",  # <think>
        b"",  # end
        b"",  # another end
        b"",  # no token of the tokenizer
    ),
    end_ids=(len(_WORDS) + 260, len(_WORDS) + 261),
    controls={"<call>": len(_WORDS) + 258, "<think>": len(_WORDS) + 259},
)
"""The tokens of the suite."""


TEXTS: dict[str, tuple[GrammarText, tuple[str, ...], tuple[str, ...]]] = {
    "regex": (
        GrammarText(kind="regex", text="(ab|abc|é)+[^x]"),
        ("abé", "abcababc\n", "éé", "ab\U0001f600"),
        ("", "ab", "abx", "xab", "éx"),
    ),
    "choice": (
        GrammarText(kind="choice", text='["ab", "abc", ""]'),
        ("ab", "abc", ""),
        ("a", "abcd", "b"),
    ),
    "ebnf": (
        GrammarText(kind="ebnf", text='top ::= "a" top "b" | top "c" | ""\n', root="top"),
        ("", "ab", "aabb", "abc", "acb", "aacbbcc"),
        ("a", "ba", "abb", "cab"),
    ),
    "json_object": (
        GrammarText(kind="json_object"),
        ("{}", '{"a": null}', '{"é": [12, {"b": "true"}]}'),
        ("", "[]", "12", '{"a"}', '{"a": }', "{}{}"),
    ),
    "json_schema": (
        GrammarText(
            kind="json_schema",
            text=json.dumps(
                {
                    "type": "object",
                    "properties": {
                        "a": {"type": "integer", "minimum": 1},
                        "b": {"$ref": "#"},
                    },
                    "required": ["a"],
                    "additionalProperties": False,
                }
            ),
        ),
        ('{"a": 12}', '{"a": 1, "b": {"a": 2}}', '{"a":12,"b":{"a":3,"b":{"a":1}}}'),
        (
            "{}", '{"a": 0}', '{"a": 1.5}', '{"b": {"a": 2}}', '{"a": 1, "c": 2}',
            '{"a": 1, "b": {}}',
        ),
    ),
    "structural_tag": (
        GrammarText(
            kind="structural_tag",
            text=json.dumps(
                {
                    "type": "structural_tag",
                    "format": {"type": "optional", "content": {"type": "regex", "pattern": "ab"}},
                }
            ),
        ),
        ("ab", ""),
        ("a", "abab"),
    ),
}  # fmt: skip

FAULTS: dict[str, tuple[GrammarText, str]] = {
    "regex": (GrammarText(kind="regex", text="ab(c"), r"character 2"),
    "choice": (GrammarText(kind="choice", text='["a"'), r"character \d"),
    "ebnf": (GrammarText(kind="ebnf", text='root ::= "a" missing'), r"character 13"),
    "json_object": (GrammarText(kind="json_object", text="{}"), r"no text"),
    "json_schema": (
        GrammarText(kind="json_schema", text='{"properties": {"a": {"type": "strin"}}}'),
        r"#/properties/a/type",
    ),
    "structural_tag": (
        GrammarText(
            kind="structural_tag", text='{"type": "structural_tag", "format": {"type": "x"}}'
        ),
        r"#/format/type",
    ),
}  # fmt: skip

UNSATISFIABLE: dict[str, GrammarText] = {
    "regex": GrammarText(kind="regex", text=r"a\bb"),
    "ebnf": GrammarText(kind="ebnf", text='root ::= "a" root'),
    "json_schema": GrammarText(
        kind="json_schema", text='{"type": "string", "minLength": 2, "maxLength": 1}'
    ),
}


def encoded(text: str, *, by_byte: bool = False) -> list[int]:
    """A text as tokens: the longest that fit, or single bytes."""
    data, ids = text.encode(), []
    pieces = sorted(
        range(len(GRAMMAR_VOCABULARY.pieces)),
        key=lambda token: -len(GRAMMAR_VOCABULARY.pieces[token]),
    )
    while data:
        token = next(
            t
            for t in pieces
            if GRAMMAR_VOCABULARY.pieces[t] and data.startswith(GRAMMAR_VOCABULARY.pieces[t])
        )
        token = data[0] if by_byte else token
        ids.append(token)
        data = data[len(GRAMMAR_VOCABULARY.pieces[token]) :]
    return ids


def allowed(
    matcher: GrammarMatcher, vocabulary: GrammarVocabulary = GRAMMAR_VOCABULARY
) -> set[int]:
    """The tokens of the next mask."""
    mask_RW = np.full((1, vocabulary.words), 0x5A5A5A5A, dtype=np.int32)
    matcher.fill_mask(mask_RW, 0)
    return mask_bits(mask_RW[0])


def mask_bits(words: npt.NDArray[np.int32]) -> set[int]:
    """Tokens of one row of masks."""
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")
    return set(np.flatnonzero(bits).tolist())


def produces(grammar: CompiledGrammar, ids: Iterable[int]) -> bool:
    """Whether the masks let tokens through and then an end."""
    matcher = grammar.matcher()
    for token in (*ids, GRAMMAR_VOCABULARY.end_ids[0]):
        if token not in allowed(matcher) or not matcher.accept(token):
            return False
    return True
