"""How are schemas combined before anybody looks inside them?

A ``Formula`` names a set of JSON values through schemas of the document. Equal formulas are equal
objects, so that a recursive schema gives finitely many of them, each with one rule in the grammar.
"""

from __future__ import annotations

from dataclasses import dataclass

from deepinfer_grammar.json_schema.document import Place

__all__ = [
    "ANYTHING",
    "NOTHING",
    "Constant",
    "Either",
    "Every",
    "Formula",
    "Not",
    "Schema",
    "both",
    "either",
    "negated",
]


@dataclass(frozen=True, slots=True)
class Schema:
    """Values that a schema of the document allows."""

    place: Place


@dataclass(frozen=True, slots=True)
class Constant:
    """One value.

    Attributes:
        text: JSON, keys sorted; values that are equal have the same text.
    """

    text: str


@dataclass(frozen=True, slots=True)
class Every:
    """Values in all of the parts."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """Values in one of the parts."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """All values but those of the part."""

    part: Formula


Formula = Schema | Constant | Every | Either | Not

ANYTHING: Formula = Every(())
NOTHING: Formula = Either(())


def both(*formulas: Formula) -> Formula:
    """Values in all of them."""
    parts: dict[Formula, None] = {}
    for formula in formulas:
        inner = formula.parts if isinstance(formula, Every) else (formula,)
        parts.update(dict.fromkeys(inner))
    if NOTHING in parts or any(negated(part) in parts for part in parts):
        return NOTHING
    return next(iter(parts)) if len(parts) == 1 else Every(tuple(parts))


def either(*formulas: Formula) -> Formula:
    """Values in one of them."""
    parts: dict[Formula, None] = {}
    for formula in formulas:
        inner = formula.parts if isinstance(formula, Either) else (formula,)
        parts.update(dict.fromkeys(inner))
    if ANYTHING in parts:
        return ANYTHING
    return next(iter(parts)) if len(parts) == 1 else Either(tuple(parts))


def negated(formula: Formula) -> Formula:
    """Values that are not in it."""
    if isinstance(formula, Not):
        return formula.part
    if formula == ANYTHING:
        return NOTHING
    return ANYTHING if formula == NOTHING else Not(formula)
