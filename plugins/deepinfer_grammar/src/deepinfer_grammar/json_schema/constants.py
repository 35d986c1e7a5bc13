"""When are two JSON values equal, and which arrays and objects equal a given one?"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from deepinfer_grammar.json_schema.formulas import NOTHING, Constant
from deepinfer_grammar.json_schema.numbers import equal_to
from deepinfer_grammar.json_schema.shapes import Arrays, Objects, Property
from deepinfer_grammar.json_schema.strings import Strings
from deepinfer_grammar.json_schema.values import Values
from deepinfer_grammar.json_text import written_number
from deepinfer_grammar.regular.dfa import EVERYTHING, of_texts

__all__ = ["constant_text", "constant_values"]


def constant_text(value: Any) -> str:
    """A text that equal values share: numbers by value, keys in their order but compared without.

    Keys keep their order, since members are written in it; two constants that differ only in that
    are two formulas with the same values, which costs a rule and nothing else.
    """
    match value:
        case bool() | None:
            return json.dumps(value)
        case int() | Decimal():
            return written_number(Decimal(value))
        case str():
            return json.dumps(value)
        case list():
            return "[" + ",".join(constant_text(one) for one in value) + "]"
    members = (f"{json.dumps(key)}:{constant_text(one)}" for key, one in value.items())
    return "{" + ",".join(members) + "}"


def constant_values(constant: Constant) -> Values:
    """The one value of a constant, in every spelling."""
    value = json.loads(constant.text, parse_float=Decimal, parse_int=Decimal)
    match value:
        case None:
            return Values(has_null=True)
        case bool():
            return Values(booleans=frozenset({value}))
        case Decimal():
            return Values(numbers=equal_to(value))
        case str():
            return Values(strings=Strings.of(of_texts([value])))
        case list():
            items = tuple(Constant(constant_text(one)) for one in value)
            return Values(arrays=(Arrays(items, NOTHING, len(items), len(items)),))
    named = tuple(
        Property(key, Constant(constant_text(one)), True, True) for key, one in value.items()
    )
    return Values(objects=(Objects(named=named, others=((EVERYTHING, NOTHING),)),))
