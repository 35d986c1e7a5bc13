"""Which texts may a string hold?

A set of strings is a union of automata over their characters, each with bounds on the length beside
it: with bounds inside, an automaton would have a state for each length. Such unions are met, joined
and negated exactly without counting; what is too long to be counted is only found out, and only
then refused or lowered, where a set is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce

from deepinfer_grammar.errors import TooLarge
from deepinfer_grammar.regular.dfa import EMPTY, EVERYTHING, Dfa, intersection, inverse, unite
from deepinfer_grammar.regular.lengths import Lengths

__all__ = ["ALL_STRINGS", "NO_STRINGS", "Bounded", "Strings"]

MAX_PARTS = 200
"""Most automata with different bounds in one set."""


@dataclass(frozen=True, slots=True)
class Bounded:
    """Texts of an automaton with ``low`` to ``high`` characters; None has no upper bound."""

    dfa: Dfa = EVERYTHING
    low: int = 0
    high: int | None = None

    @property
    def has_bounds(self) -> bool:
        """Whether its length is bounded beside the automaton."""
        return self.low > 0 or self.high is not None

    def simplified(self) -> Bounded | None:
        """Without bounds that all texts keep anyway; None if there certainly is no text."""
        if self.dfa.is_empty:
            return None
        if not self.has_bounds:
            return self
        lengths = Lengths(self.dfa)
        if not lengths.has_any(self.low, self.high):
            return None
        return Bounded(
            self.dfa,
            self.low if self.low > lengths.shortest else 0,
            None if self.high is None or self.high >= lengths.longest else self.high,
        )

    def holds(self, text: str) -> bool:
        """Whether a text is one of them."""
        is_within = self.low <= len(text) and (self.high is None or len(text) <= self.high)
        return is_within and self.dfa.accepts(text)

    def meet(self, other: Bounded) -> Bounded:
        """Texts of both."""
        highs = [high for high in (self.high, other.high) if high is not None]
        dfa = intersection(self.dfa, other.dfa)
        return Bounded(dfa, max(self.low, other.low), min(highs, default=None))

    def others(self) -> Iterator[Bounded]:
        """Parts that together have all other texts."""
        if not self.dfa.is_everything:
            yield Bounded(inverse(self.dfa))
        if self.low > 0:
            yield Bounded(high=self.low - 1)
        if self.high is not None:
            yield Bounded(low=self.high + 1)


@dataclass(frozen=True, slots=True)
class Strings:
    """Texts of any of the parts; each part has some text, and no two have the same bounds."""

    parts: tuple[Bounded, ...]

    @classmethod
    def of(cls, dfa: Dfa = EVERYTHING, low: int = 0, high: int | None = None) -> Strings:
        """Texts of one automaton within bounds."""
        return _united([Bounded(dfa, low, high)])

    @property
    def is_empty(self) -> bool:
        """Whether there is certainly none."""
        return not self.parts

    def holds(self, text: str) -> bool:
        """Whether a text is one of them."""
        return any(one.holds(text) for one in self.parts)

    def meet(self, other: Strings) -> Strings:
        """Texts of both."""
        if ALL_STRINGS in (self, other):
            return other if self == ALL_STRINGS else self
        return _united(one.meet(two) for one in self.parts for two in other.parts)

    def join(self, other: Strings) -> Strings:
        """Texts of either."""
        return _united((*self.parts, *other.parts))

    def inverse(self) -> Strings:
        """All other texts."""
        found = ALL_STRINGS
        for part in self.parts:
            found = found.meet(_united(part.others()))
        return found

    def exactly(self) -> Dfa:
        """One automaton for everything.

        Raises:
            TooLarge: a bound on the length is too large to count.
        """
        languages = (Lengths(one.dfa).within(one.low, one.high) for one in self.parts)
        return reduce(unite, languages, EMPTY)

    def written(self) -> Dfa:
        """As ``exactly``, but upper bounds that are too large are lowered: never to be negated.

        Raises:
            TooLarge: not even the shortest text of a part can be counted.
        """
        return reduce(unite, map(_written, self.parts), EMPTY)


def _written(part: Bounded) -> Dfa:
    lengths = Lengths(part.dfa)
    if part.high is None:
        return lengths.within(part.low, None)
    return lengths.within_fewer(part.low, part.high)


def _united(parts: Iterable[Bounded]) -> Strings:
    """All texts of the parts, joined as far as that needs no counting."""
    by_bounds: dict[tuple[int, int | None], Dfa] = {}
    for part in parts:
        simple = part.simplified()
        if simple is not None:
            bounds = simple.low, simple.high
            by_bounds[bounds] = unite(by_bounds.get(bounds, EMPTY), simple.dfa)
            if len(by_bounds) > MAX_PARTS:
                raise TooLarge(f"texts have over {MAX_PARTS} different bounds on their length")
    if by_bounds.get((0, None)) == EVERYTHING:
        return ALL_STRINGS
    joined: list[Bounded] = []
    for (low, high), dfa in sorted(by_bounds.items(), key=lambda item: item[0][0]):
        same = next((one for one in joined if one.dfa == dfa and _touch(one, low)), None)
        if same is None:
            joined.append(Bounded(dfa, low, high))
        else:
            joined.remove(same)
            ends = None if None in (same.high, high) else max(same.high or 0, high or 0)
            joined.append(Bounded(dfa, same.low, ends))
    if any(not one.has_bounds and one.dfa.is_everything for one in joined):
        return ALL_STRINGS
    return Strings(tuple(sorted(joined, key=lambda one: (one.low, one.high is None, one.high))))


def _touch(one: Bounded, low: int) -> bool:
    """Whether no length lies between a part and a later lower bound."""
    return one.high is None or low <= one.high + 1


ALL_STRINGS = Strings((Bounded(),))
NO_STRINGS = Strings(())
