"""Random schemas that combine keywords in every way, and texts that masks let through."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from deepinfer_core.interfaces.grammar import CompiledGrammar, GrammarVocabulary

NAMES = ("a", "b", "c", "ab")
STRINGS = ("", "a", "b", "ab", 'q"')
NUMBERS = (0, 1, -1, 2, 1.5, 12)

PATTERNS = ("^a", "b$", "^[ab]+$", "a|c", "^.{2}$", "^(?!a)")


# Automata so large, or bounds so high, that both together cannot be counted.
LONG_PATTERNS = ("^[ab]+@[ab]{1,60}$", "^a{60}|b+$", "^[ab]+( [ab]+)*$")
LONG_STRINGS = (
    "a" * 110 + "@b",
    "b" * 70,
    "a" * 61,
    "ab " * 40 + "a",
    "b@a",
    "2020-01-01T00:00:00Z",
)


def schema(chance: random.Random, depth: int) -> Any:
    """A schema; its parts are one level less deep."""
    if depth <= 0 or chance.random() < 0.15:
        return _leaf(chance)
    count = chance.randint(1, 3)
    found: dict[str, Any] = {}
    for _ in range(count):
        found.update(chance.choice(_PARTS)(chance, depth))
    return found


def _leaf(chance: random.Random) -> Any:
    return chance.choice(
        (
            True,
            {},
            {"type": chance.choice(("string", "integer", "number", "boolean", "null"))},
            {"enum": [chance.choice(STRINGS), chance.choice(NUMBERS), None]},
            {"const": chance.choice((*STRINGS, *NUMBERS, True, None, [1, "a"], {"a": 1}))},
            {
                "type": "string",
                "minLength": chance.randint(0, 2),
                "maxLength": chance.randint(1, 4),
            },
            {"minimum": chance.choice(NUMBERS)},
        )
    )


def counted(chance: random.Random, depth: int) -> dict[str, Any]:
    """Strings with bounds on their length beside large automata, joined and negated."""
    if depth > 0:
        kind = chance.choice(("anyOf", "oneOf", "allOf", "not"))
        if kind == "not":
            return {"not": counted(chance, depth - 1)}
        return {kind: [counted(chance, depth - 1) for _ in range(2)]}
    bounds = {"minLength": chance.randint(0, 3), "maxLength": chance.choice((40, 200, 20_000))}
    return {**bounds, "pattern": chance.choice((*LONG_PATTERNS, "^b$"))}


def _some(chance: random.Random, depth: int, low: int = 1) -> list[Any]:
    return [schema(chance, depth - 1) for _ in range(chance.randint(low, 3))]


def _named(chance: random.Random, depth: int) -> dict[str, Any]:
    names = chance.sample(NAMES, chance.randint(1, 3))
    return {name: schema(chance, depth - 1) for name in names}


_PARTS = (
    lambda c, d: {"type": c.choice(("object", "array", "string", ["object", "string"], "number"))},
    lambda c, d: {"properties": _named(c, d)},
    lambda c, d: {"properties": _named(c, d), "additionalProperties": schema(c, d - 1)},
    lambda c, d: {"patternProperties": {c.choice(PATTERNS): schema(c, d - 1)}},
    lambda c, d: {
        "patternProperties": {c.choice(PATTERNS): schema(c, d - 1)},
        "additionalProperties": c.choice((False, True, {"type": "null"})),
    },
    lambda c, d: {"required": c.sample(NAMES, c.randint(1, 2))},
    lambda c, d: {"minProperties": c.randint(0, 3)},
    lambda c, d: {"maxProperties": c.randint(0, 3)},
    lambda c, d: {"propertyNames": {"pattern": c.choice(PATTERNS)}},
    lambda c, d: {"dependentRequired": {c.choice(NAMES): c.sample(NAMES, 1)}},
    lambda c, d: {"dependentSchemas": {c.choice(NAMES): schema(c, d - 1)}},
    lambda c, d: {"items": schema(c, d - 1)},
    lambda c, d: {"prefixItems": _some(c, d)},
    lambda c, d: {"prefixItems": _some(c, d), "items": schema(c, d - 1)},
    lambda c, d: {"minItems": c.randint(0, 3)},
    lambda c, d: {"maxItems": c.randint(0, 3)},
    lambda c, d: {"contains": schema(c, d - 1), "minContains": c.randint(0, 2)},
    lambda c, d: {"contains": schema(c, d - 1), "maxContains": c.randint(1, 2)},
    lambda c, d: {"pattern": c.choice(PATTERNS)},
    lambda c, d: {"minLength": c.randint(0, 3)},
    lambda c, d: {"maxLength": c.randint(0, 40)},
    lambda c, d: {"minimum": c.choice(NUMBERS), "maximum": c.choice(NUMBERS) + 3},
    lambda c, d: {"exclusiveMinimum": c.choice(NUMBERS)},
    lambda c, d: {"multipleOf": c.choice((1, 2, 0.5, 3))},
    lambda c, d: {"allOf": _some(c, d)},
    lambda c, d: {"anyOf": _some(c, d)},
    lambda c, d: {"oneOf": _some(c, d)},
    lambda c, d: {"not": schema(c, d - 1)},
    lambda c, d: {"if": schema(c, d - 1), "then": schema(c, d - 1), "else": schema(c, d - 1)},
    lambda c, d: {"unevaluatedProperties": c.choice((False, {"type": "string"}))},
    lambda c, d: {"unevaluatedItems": c.choice((False, {"type": "string"}))},
)


def written(
    grammar: CompiledGrammar,
    vocabulary: GrammarVocabulary,
    chance: random.Random,
    most: int,
) -> str | None:
    """A text that a random walk through the masks wrote; None if it did not end in time."""
    matcher = grammar.matcher()
    data = b""
    mask_RW = np.zeros((1, vocabulary.words), dtype=np.int32)
    for step in range(most):
        matcher.fill_mask(mask_RW, 0)
        bits = np.unpackbits(mask_RW.view(np.uint8), bitorder="little")
        options = np.flatnonzero(bits).tolist()
        assert options, f"a dead end behind {data!r}"
        ends = [token for token in options if token in vocabulary.end_ids]
        if ends and (chance.random() < 0.5 or step > most // 2):
            return data.decode()
        options = [token for token in options if token not in ends] or ends
        token = chance.choice(_liked(options, vocabulary, step > most // 3))
        assert matcher.accept(token)
        if token in ends:
            return data.decode()
        data += vocabulary.pieces[token]
    return None


def _liked(options: list[int], vocabulary: GrammarVocabulary, hurries: bool) -> list[int]:
    """Closing marks when in a hurry, else the letters that schemas speak of, if there are any."""
    marks = b'"}]' if hurries else b'{}[],:"abc012-.\\tfn '
    wanted = {bytes([mark]) for mark in marks}
    first = [token for token in options if vocabulary.pieces[token][:1] in wanted]
    return first or options
