"""Which texts of an automaton have a number of characters within bounds?

States of the result are pairs of a state and the number of characters so far. Where that number no
longer matters, since every end that can still be reached is within the bounds, it is forgotten.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import cached_property

from deepinfer_grammar.errors import TooLarge
from deepinfer_grammar.regular.dfa import EMPTY, Dfa, Edge, without_dead_ends

__all__ = ["MAX_COUNTED_STATES", "Lengths"]

MAX_COUNTED_STATES = 6000
"""Most states that know a number of characters."""

_MOST_STEPS = 20_000
"""Longest text that is looked for to see whether there is any."""

_FORGOTTEN = -1

_State = tuple[int, int]
"""A state of the automaton, and the characters so far."""


class Lengths:
    """The lengths of an automaton's texts.

    Args:
        dfa: has no dead ends, unless it is empty.
    """

    def __init__(self, dfa: Dfa) -> None:
        self.dfa = dfa
        self._following = [{to for _, _, to in edges} for edges in dfa.edges]
        self._sources: list[list[int]] = [[] for _ in dfa.edges]
        for state, targets in enumerate(self._following):
            for to in targets:
                self._sources[to].append(state)

    @property
    def shortest(self) -> float:
        """Characters of the shortest text; infinite if there is none."""
        return self._nearest[0]

    @property
    def longest(self) -> float:
        """Characters of the longest text; infinite if there is no longest one."""
        return self._farthest[0]

    @cached_property
    def _nearest(self) -> list[float]:
        """Fewest characters from each state to an end."""
        found = [0.0 if ends else math.inf for ends in self.dfa.accepting]
        waiting = [state for state, ends in enumerate(self.dfa.accepting) if ends]
        for state in waiting:
            for source in self._sources[state]:
                if found[source] == math.inf:
                    found[source] = found[state] + 1
                    waiting.append(source)
        return found

    @cached_property
    def _farthest(self) -> list[float]:
        """Most characters from each state to an end; infinite where a loop can be reached."""
        found = [math.inf] * len(self._following)
        unknown = [len(targets) for targets in self._following]
        waiting = [state for state, count in enumerate(unknown) if not count]
        for state in waiting:
            found[state] = max((found[to] + 1 for to in self._following[state]), default=0.0)
            for source in self._sources[state]:
                unknown[source] -= 1
                if not unknown[source]:
                    waiting.append(source)
        return found

    def has_any(self, low: int, high: int | None) -> bool:
        """Whether a text has ``low`` to ``high`` characters; True may also mean: perhaps."""
        limit = math.inf if high is None else high
        if self.shortest > limit or self.longest < low:
            return False
        # From wherever a text stands after ``low`` characters, an end is less than so many away.
        if limit - low >= len(self.dfa.edges) or low > _MOST_STEPS:
            return True
        states = {0}
        for _ in range(low):
            states = {to for state in states for to in self._following[state]}
        return any(low + self._nearest[state] <= limit for state in states)

    def within(self, low: int, high: int | None) -> Dfa:
        """Exactly the texts with ``low`` to ``high`` characters; None has no upper bound.

        Raises:
            TooLarge: too many states would count.
        """
        limit = math.inf if high is None else high
        states = self._states(low, limit)
        if states is None:
            raise TooLarge(
                f"a length of {low} {'or more' if high is None else f'to {high}'} beside the format"
                f" or pattern takes over {MAX_COUNTED_STATES} states to count"
            )
        return self._written(states, low, limit)

    def within_fewer(self, low: int, high: int) -> Dfa:
        """As ``within``, with the largest upper bound up to ``high`` that can be counted.

        For what is written and never negated: fewer texts, never more; some, if there are any.

        Raises:
            TooLarge: not even the shortest of the texts can be counted.
        """
        first = max(low, self.shortest)
        if first > high:
            return EMPTY
        # Each number of characters up to the bound has a state, unless all are forgotten.
        bounds = range(int(first), min(high, int(first) + MAX_COUNTED_STATES) + 1)
        taken = bisect_left(bounds, True, key=lambda bound: self._states(low, bound) is None)
        if taken and self.has_any(low, bounds[taken - 1]):
            return self.within(low, bounds[taken - 1])
        return self.within(low, high)

    def _states(self, low: int, high: float) -> dict[_State, int] | None:
        """The states of the result, numbered; None if too many of them would count."""
        start = self._reached(0, 0, low, high)
        number = {} if start is None else {start: 0}
        order = list(number)
        counting = 0
        for state, count in order:
            counting += count != _FORGOTTEN
            if counting > MAX_COUNTED_STATES:
                return None
            for to in self._following[state]:
                after = self._behind(count, to, low, high)
                if after is not None and after not in number:
                    number[after] = len(order)
                    order.append(after)
        return number

    def _reached(self, state: int, count: int, low: int, high: float) -> _State | None:
        """A state behind so many characters; None if no end within the bounds follows."""
        first, last = count + self._nearest[state], count + self._farthest[state]
        if first > high or last < low:
            return None
        return state, _FORGOTTEN if low <= first and last <= high else count

    def _behind(self, count: int, to: int, low: int, high: float) -> _State | None:
        """As ``_reached``, one character behind a state with a count."""
        return (to, count) if count == _FORGOTTEN else self._reached(to, count + 1, low, high)

    def _written(self, number: dict[_State, int], low: int, high: float) -> Dfa:
        edges: list[tuple[Edge, ...]] = []
        accepting = []
        for state, count in number:
            found = []
            for first, last, to in self.dfa.edges[state]:
                after = self._behind(count, to, low, high)
                if after is not None:
                    found.append((first, last, number[after]))
            edges.append(tuple(found))
            is_within = count == _FORGOTTEN or low <= count <= high
            accepting.append(self.dfa.accepting[state] and is_within)
        return without_dead_ends(Dfa(tuple(edges), tuple(accepting))) if edges else EMPTY
