"""Which arrays and objects does a schema allow, and how are such sets combined?

A shape is a conjunction: everything it says holds. A set of arrays (or objects) is a tuple of
shapes of which one holds. ``evaluated`` parts say which members some keyword has looked at; only
``unevaluatedItems`` and ``unevaluatedProperties`` read them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from deepinfer_grammar.errors import SchemaFault
from deepinfer_grammar.json_schema.formulas import ANYTHING, NOTHING, Formula, both, negated
from deepinfer_grammar.regular.dfa import (
    EMPTY,
    EVERYTHING,
    Dfa,
    difference,
    intersection,
    inverse,
    of_texts,
    unite,
)

__all__ = ["MAX_LOOSE", "Arrays", "Counted", "Objects", "Property"]


MAX_LOOSE = 4
"""Most named members in any order; each set of them has rules."""


@dataclass(frozen=True, slots=True)
class Counted:
    """``low`` to ``high`` items, from the one at ``offset`` on, belong to a formula."""

    offset: int
    formula: Formula
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Arrays:
    """Arrays.

    Attributes:
        prefix: formulas of the first items.
        rest: formula of the others.
        low: fewest items.
        high: most items; None has no bound.
        counted: numbers of items of some kind.
        unique_at: path of the keyword that forbids equal items; empty if none does.
        evaluated: so many first items were looked at; None means all.
        evaluated_by: items of these formulas were too.
    """

    prefix: tuple[Formula, ...] = ()
    rest: Formula = ANYTHING
    low: int = 0
    high: int | None = None
    counted: tuple[Counted, ...] = ()
    unique_at: str = ""
    evaluated: int | None = 0
    evaluated_by: tuple[Formula, ...] = ()

    @property
    def is_impossible(self) -> bool:
        """Whether no array can be of it; False may also mean that nobody looked."""
        if self.high is not None and self.high < self.low:
            return True
        return NOTHING in self.prefix[: self.low]

    def item(self, index: int) -> Formula:
        """Formula of one item."""
        return self.prefix[index] if index < len(self.prefix) else self.rest

    def meet(self, other: Arrays) -> Arrays:
        """Arrays of both."""
        count = max(len(self.prefix), len(other.prefix))
        highs = [high for high in (self.high, other.high) if high is not None]
        looked = [self.evaluated, other.evaluated]
        return Arrays(
            prefix=tuple(both(self.item(i), other.item(i)) for i in range(count)),
            rest=both(self.rest, other.rest),
            low=max(self.low, other.low),
            high=min(highs, default=None),
            counted=tuple(dict.fromkeys(self.counted + other.counted)),
            unique_at=self.unique_at or other.unique_at,
            evaluated=None if None in looked else max(self.evaluated or 0, other.evaluated or 0),
            evaluated_by=tuple(dict.fromkeys(self.evaluated_by + other.evaluated_by)),
        )

    def plain(self) -> Arrays:
        """The same without notes on what was looked at."""
        return replace(self, evaluated=0, evaluated_by=())

    def others(self) -> Iterator[Arrays]:
        """Shapes that together have all arrays that are not of this one.

        Raises:
            SchemaFault: for ``uniqueItems``, whose opposite has no such shapes.
        """
        if self.unique_at:
            raise SchemaFault("uniqueItems cannot be negated", self.unique_at)
        if self.low > 0:
            yield Arrays(high=self.low - 1)
        if self.high is not None:
            yield Arrays(low=self.high + 1)
        for index, formula in enumerate(self.prefix):
            if formula != ANYTHING:
                skipped = (ANYTHING,) * index
                yield Arrays(prefix=(*skipped, negated(formula)), low=index + 1)
        if self.rest != ANYTHING:
            yield Arrays(counted=(Counted(len(self.prefix), negated(self.rest), 1, None),))
        for one in self.counted:
            if one.low > 0:
                yield Arrays(counted=(replace(one, low=0, high=one.low - 1),))
            if one.high is not None:
                yield Arrays(counted=(replace(one, low=one.high + 1, high=None),))


@dataclass(frozen=True, slots=True)
class Property:
    """A member by name.

    Attributes:
        name: its name.
        formula: its values.
        is_required: whether it must be there.
        is_listed: whether it is written at its place in the order; the others of the named stand
            anywhere behind the listed ones.
    """

    name: str
    formula: Formula
    is_required: bool
    is_listed: bool = False


@dataclass(frozen=True, slots=True)
class Objects:
    """Objects.

    Attributes:
        named: members by name, in the order in which they are written.
        others: formulas of all other members by their names; the automata divide all texts among
            them (a name in ``named`` may be in one of them, and means nothing there).
        low: fewest members.
        high: most members; None has no bound.
        some: for each, some other member has such a name and such a value.
        looked_at: names that were looked at.
    """

    named: tuple[Property, ...] = ()
    others: tuple[tuple[Dfa, Formula], ...] = ((EVERYTHING, ANYTHING),)
    low: int = 0
    high: int | None = None
    some: tuple[tuple[Dfa, Formula], ...] = ()
    looked_at: Dfa = EMPTY

    @property
    def is_impossible(self) -> bool:
        """Whether no object can be of it; False may also mean that nobody looked."""
        if self.high is not None and self.high < self.low:
            return True
        return any(one.is_required and one.formula == NOTHING for one in self.named)

    def names(self) -> frozenset[str]:
        """Names of the named members."""
        return frozenset(one.name for one in self.named)

    def formula_of(self, name: str) -> Formula:
        """Formula of a member that may or may not be named."""
        for one in self.named:
            if one.name == name:
                return one.formula
        return next((formula for dfa, formula in self.others if dfa.accepts(name)), NOTHING)

    def meet(self, other: Objects) -> Iterator[Objects]:
        """Shapes that together have the objects of both."""
        for mine in self.naming(other.names()):
            for theirs in other.naming(self.names()):
                yield mine._met(theirs)

    def naming(self, names: frozenset[str]) -> Iterator[Objects]:
        """The same objects, with these names among the named ones.

        A member that becomes named may be the one that ``some`` asks for: a shape for each case.
        """
        added = tuple(sorted(names - self.names()))
        free = replace(
            self,
            named=self.named + tuple(Property(n, self.formula_of(n), False) for n in added),
            some=(),
        )
        if not self.some:
            yield free
            return
        known = of_texts(added) if added else EMPTY
        shapes = [free]
        for dfa, formula in self.some:
            beyond = difference(dfa, known)
            following = [] if beyond.is_empty else [
                replace(shape, some=(*shape.some, (beyond, formula))) for shape in shapes
            ]  # fmt: skip
            for name in added:
                if dfa.accepts(name):
                    following += [shape._requiring(name, formula) for shape in shapes]
            shapes = following
        yield from shapes

    def _requiring(self, name: str, formula: Formula) -> Objects:
        """With a named member that must be there and of a formula."""
        named = tuple(
            replace(one, formula=both(one.formula, formula), is_required=True)
            if one.name == name
            else one
            for one in self.named
        )
        return replace(self, named=named)

    def _met(self, other: Objects) -> Objects:
        """Objects of both; both have the same names."""
        theirs = {one.name: one for one in other.named}
        is_open = len(self.named) <= MAX_LOOSE and _is_mixed(self, theirs)
        mine = {one.name: one for one in self.named}
        listed = (one.name for one in (*self.named, *other.named) if one.is_listed)
        named = tuple(
            Property(
                name,
                both(mine[name].formula, theirs[name].formula),
                mine[name].is_required or theirs[name].is_required,
                not is_open and (mine[name].is_listed or theirs[name].is_listed),
            )
            for name in dict.fromkeys((*listed, *mine))
        )
        highs = [high for high in (self.high, other.high) if high is not None]
        return Objects(
            named=named,
            others=_paired(self.others, other.others),
            low=max(self.low, other.low),
            high=min(highs, default=None),
            some=tuple(dict.fromkeys(self.some + other.some)),
            looked_at=unite(self.looked_at, other.looked_at),
        )

    def plain(self) -> Objects:
        """The same without notes on what was looked at."""
        return replace(self, looked_at=EMPTY)

    def complement(self) -> Iterator[Objects]:
        """Shapes that together have all objects that are not of this one."""
        for one in self.named:
            if one.is_required:
                yield Objects(named=(Property(one.name, NOTHING, False),))
            if one.formula != ANYTHING:
                yield Objects(named=(Property(one.name, negated(one.formula), True),))
        if self.low > 0:
            yield Objects(high=self.low - 1)
        if self.high is not None:
            yield Objects(low=self.high + 1)
        free = tuple(Property(one.name, ANYTHING, False) for one in self.named)
        known = of_texts(self.names()) if free else EMPTY
        for dfa, formula in self.others:
            beyond = difference(dfa, known)
            if formula != ANYTHING and not beyond.is_empty:
                yield Objects(named=free, some=((beyond, negated(formula)),))
        for dfa, formula in self.some:
            rest = ((dfa, negated(formula)), (inverse(dfa), ANYTHING))
            yield Objects(named=free, others=tuple(r for r in rest if not r[0].is_empty))


def _is_mixed(first: Objects, second: dict[str, Property]) -> bool:
    """Whether two lists of members name different ones, so that nothing says which come first."""
    pairs = [(one.is_listed, second[one.name].is_listed) for one in first.named]
    return (True, False) in pairs and (False, True) in pairs


def _paired(
    first: tuple[tuple[Dfa, Formula], ...], second: tuple[tuple[Dfa, Formula], ...]
) -> tuple[tuple[Dfa, Formula], ...]:
    """Both divisions of all names at once; parts with one formula are joined."""
    found: dict[Formula, Dfa] = {}
    for dfa, formula in first:
        for other, condition in second:
            common = intersection(dfa, other)
            if not common.is_empty:
                merged = both(formula, condition)
                found[merged] = unite(found[merged], common) if merged in found else common
    return tuple((dfa, formula) for formula, dfa in found.items())
