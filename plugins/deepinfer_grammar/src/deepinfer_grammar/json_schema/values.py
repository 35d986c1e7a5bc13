"""Which values of each JSON type are allowed, and how are such sets combined?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from deepinfer_grammar.errors import TooLarge
from deepinfer_grammar.json_schema.numbers import FREE, INTEGER, PLAIN
from deepinfer_grammar.json_schema.shapes import Arrays, Objects
from deepinfer_grammar.json_schema.strings import ALL_STRINGS, NO_STRINGS, Strings
from deepinfer_grammar.regular.dfa import EMPTY, Dfa, difference, intersection, unite

__all__ = ["ALL", "MAX_SHAPES", "NONE", "Values", "of_type"]

_Shape = TypeVar("_Shape", Arrays, Objects)

MAX_SHAPES = 2000
"""Most alternatives of arrays or objects; negation and ``anyOf`` multiply them."""


@dataclass(frozen=True, slots=True)
class Values:
    """A set of JSON values.

    Attributes:
        has_null: whether null is one.
        booleans: which of true and false are.
        numbers: automaton of their spellings, see ``numbers``.
        strings: which strings are.
        arrays: shapes, of which one must hold.
        objects: the same.
    """

    has_null: bool = False
    booleans: frozenset[bool] = frozenset()
    numbers: Dfa = EMPTY
    strings: Strings = NO_STRINGS
    arrays: tuple[Arrays, ...] = ()
    objects: tuple[Objects, ...] = ()

    def meet(self, other: Values) -> Values:
        """Values of both."""
        if other == ALL:
            return self
        if self == ALL:
            return other
        return Values(
            has_null=self.has_null and other.has_null,
            booleans=self.booleans & other.booleans,
            numbers=intersection(self.numbers, other.numbers),
            strings=self.strings.meet(other.strings),
            arrays=_limited(a.meet(b) for a in self.arrays for b in other.arrays),
            objects=_limited(
                found for a in self.objects for b in other.objects for found in a.meet(b)
            ),
        )

    def join(self, other: Values) -> Values:
        """Values of either."""
        return Values(
            has_null=self.has_null or other.has_null,
            booleans=self.booleans | other.booleans,
            numbers=unite(self.numbers, other.numbers),
            strings=self.strings.join(other.strings),
            arrays=_limited((*self.arrays, *other.arrays)),
            objects=_limited((*self.objects, *other.objects)),
        )

    def complement(self) -> Values:
        """All other values."""
        arrays: tuple[Arrays, ...] = (Arrays(),)
        for shape in self.arrays:
            others = tuple(shape.others())
            arrays = _limited(a.meet(b) for a in arrays for b in others)
        objects: tuple[Objects, ...] = (Objects(),)
        for one in self.objects:
            rest = tuple(one.complement())
            objects = _limited(found for a in objects for b in rest for found in a.meet(b))
        return Values(
            has_null=not self.has_null,
            booleans=frozenset({True, False}) - self.booleans,
            numbers=FREE if self.numbers.is_empty else difference(PLAIN, self.numbers),
            strings=self.strings.inverse(),
            arrays=arrays,
            objects=objects,
        )

    def plain(self) -> Values:
        """The same without notes on which members were looked at."""
        return replace(
            self,
            arrays=_limited(shape.plain() for shape in self.arrays),
            objects=_limited(shape.plain() for shape in self.objects),
        )


ALL = Values(
    has_null=True,
    booleans=frozenset({True, False}),
    numbers=FREE,
    strings=ALL_STRINGS,
    arrays=(Arrays(),),
    objects=(Objects(),),
)
NONE = Values()

_TYPES = {
    "null": Values(has_null=True),
    "boolean": Values(booleans=ALL.booleans),
    "number": Values(numbers=FREE),
    "integer": Values(numbers=INTEGER),
    "string": Values(strings=ALL_STRINGS),
    "array": Values(arrays=ALL.arrays),
    "object": Values(objects=ALL.objects),
}


def of_type(name: str) -> Values | None:
    """All values of a type; None if there is no such type."""
    return _TYPES.get(name)


def _limited(shapes: Iterable[_Shape]) -> tuple[_Shape, ...]:
    """Without repetition, and not too many."""
    found: dict[_Shape, None] = {}
    for shape in shapes:
        if shape.is_impossible:
            continue
        found[shape] = None
        if len(found) > MAX_SHAPES:
            raise TooLarge(f"a schema stands for over {MAX_SHAPES} alternatives")
    return tuple(found)
