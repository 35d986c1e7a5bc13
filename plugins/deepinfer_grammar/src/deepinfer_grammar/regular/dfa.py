"""How are regular languages combined, and when is one empty?

A ``Dfa`` has states 0..n-1, starts in 0 and has no transitions out of a set of characters that
leads nowhere: a missing one is a dead end. Edges of a state are sorted and disjoint.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from deepinfer_grammar.errors import TooLarge
from deepinfer_grammar.regular.charset import ANY

__all__ = [
    "EMPTY",
    "EVERYTHING",
    "MAX_STATES",
    "Dfa",
    "Edge",
    "difference",
    "intersection",
    "inverse",
    "of_texts",
    "unite",
    "without_dead_ends",
]

Edge = tuple[int, int, int]
"""First and last character of a range, and the state that it leads to."""

MAX_STATES = 20000
"""Most states of an automaton. A mask is built for each, so larger ones would pass any time limit
anyway."""

MINIMISED_STATES = 400
"""Automata with more states are used as they are: rounds times states grows as the square."""


@dataclass(frozen=True, slots=True)
class Dfa:
    """A language as an automaton.

    Attributes:
        edges: of each state.
        accepting: whether a text may end in the state.
    """

    edges: tuple[tuple[Edge, ...], ...]
    accepting: tuple[bool, ...]

    def accepts(self, text: str) -> bool:
        """Whether the text belongs to the language."""
        state: int | None = 0
        for letter in text:
            state = self.follow(state, ord(letter))
            if state is None:
                return False
        return self.accepting[state] if state is not None else False

    def follow(self, state: int | None, code: int) -> int | None:
        """The state after one more character; None is a dead end."""
        if state is None:
            return None
        return next((to for low, high, to in self.edges[state] if low <= code <= high), None)

    @property
    def is_empty(self) -> bool:
        """Whether no text belongs to it; true of trimmed automata without accepting states."""
        return not any(self.accepting)

    @property
    def is_everything(self) -> bool:
        """Whether every text belongs to it; exact for minimised automata."""
        return self == EVERYTHING

    def trimmed(self) -> Dfa:
        """The same language without states that lead nowhere, minimised unless it is large."""
        return _minimised(without_dead_ends(self))


EMPTY = Dfa(((),), (False,))
EVERYTHING = Dfa((tuple((low, high, 0) for low, high in ANY),), (True,))


def without_dead_ends(dfa: Dfa) -> Dfa:
    """The same language without states that cannot be reached or from which no text can end."""
    reached = _closure({0}, lambda state: (to for _, _, to in dfa.edges[state]))
    sources: dict[int, list[int]] = {}
    for state in reached:
        for _, _, to in dfa.edges[state]:
            sources.setdefault(to, []).append(state)
    ends = {state for state in reached if dfa.accepting[state]}
    live = _closure(ends, lambda state: sources.get(state, ()))
    if 0 not in live:
        return EMPTY
    order = [0, *sorted(live - {0})]
    number = {state: index for index, state in enumerate(order)}
    edges = tuple(
        _joined((low, high, number[to]) for low, high, to in dfa.edges[state] if to in number)
        for state in order
    )
    return Dfa(edges, tuple(dfa.accepting[state] for state in order))


def _closure(start: set[int], following: Callable[[int], Iterable[int]]) -> set[int]:
    found, waiting = set(start), list(start)
    while waiting:
        for state in following(waiting.pop()):
            if state not in found:
                found.add(state)
                waiting.append(state)
    return found


def _joined(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    """Merge ranges that touch and lead to the same state (surrogates between them do not count)."""
    merged: list[Edge] = []
    for low, high, to in sorted(edges):
        if merged and merged[-1][2] == to and merged[-1][1] + 1 == low:
            merged[-1] = (merged[-1][0], high, to)
        else:
            merged.append((low, high, to))
    return tuple(merged)


def _minimised(dfa: Dfa) -> Dfa:
    """Moore's algorithm: states are alike until an edge tells them apart."""
    if len(dfa.edges) > MINIMISED_STATES:
        return dfa
    group = [int(value) for value in dfa.accepting]
    count = len(set(group))
    while True:
        signatures: dict[object, int] = {}
        fresh = []
        for state, edges in enumerate(dfa.edges):
            key = (group[state], _joined((low, high, group[to]) for low, high, to in edges))
            fresh.append(signatures.setdefault(key, len(signatures)))
        if len(signatures) == count:
            break
        group, count = fresh, len(signatures)
    if count == len(dfa.edges):
        return _renumbered(dfa)
    first: dict[int, int] = {}
    for state, name in enumerate(group):
        first.setdefault(name, state)
    order = [first[name] for name in sorted(first, key=lambda name: first[name])]
    number = {group[state]: index for index, state in enumerate(order)}
    merged = tuple(
        _joined((low, high, number[group[to]]) for low, high, to in dfa.edges[state])
        for state in order
    )
    return _renumbered(Dfa(merged, tuple(dfa.accepting[state] for state in order)))


def _renumbered(dfa: Dfa) -> Dfa:
    """Number states as a walk from the start meets them, so that equal languages are equal."""
    order, number = [0], {0: 0}
    for state in order:
        for _, _, to in dfa.edges[state]:
            if to not in number:
                number[to] = len(order)
                order.append(to)
    edges = tuple(
        tuple((low, high, number[to]) for low, high, to in dfa.edges[state]) for state in order
    )
    return Dfa(edges, tuple(dfa.accepting[state] for state in order))


def _combined(first: Dfa, second: Dfa, keep: Callable[[bool, bool], bool]) -> Dfa:
    """The product automaton; None stands for a dead end of either side."""
    start: tuple[int | None, int | None] = (0, 0)
    number = {start: 0}
    order = [start]
    edges: list[tuple[Edge, ...]] = []
    for left, right in order:
        found: list[Edge] = []
        for low, high, pair in _paired(first, left, second, right, keep):
            if pair not in number:
                number[pair] = len(order)
                order.append(pair)
                if len(order) > MAX_STATES:
                    raise TooLarge(f"an automaton of the grammar has over {MAX_STATES} states")
            found.append((low, high, number[pair]))
        edges.append(_joined(found))
    accepting = tuple(
        keep(
            left is not None and first.accepting[left],
            right is not None and second.accepting[right],
        )
        for left, right in order
    )
    return Dfa(tuple(edges), accepting)


def _paired(
    first: Dfa, left: int | None, second: Dfa, right: int | None, keep: Callable[[bool, bool], bool]
) -> Iterable[tuple[int, int, tuple[int | None, int | None]]]:
    """Edges of a state of the product, but those from which nothing can be kept."""
    if left is None and not keep(False, True):
        return
    if right is None and not keep(True, False):
        return
    ones = first.edges[left] if left is not None else ()
    twos = second.edges[right] if right is not None else ()
    cuts = sorted(
        {edge[0] for edge in ones}
        | {edge[1] + 1 for edge in ones}
        | {edge[0] for edge in twos}
        | {edge[1] + 1 for edge in twos}
    )
    i = j = 0
    for low, after in itertools.pairwise(cuts):
        while i < len(ones) and ones[i][1] < low:
            i += 1
        while j < len(twos) and twos[j][1] < low:
            j += 1
        one = ones[i][2] if i < len(ones) and ones[i][0] <= low else None
        two = twos[j][2] if j < len(twos) and twos[j][0] <= low else None
        if one is None and (two is None or not keep(False, True)):
            continue
        if two is None and not keep(True, False):
            continue
        yield low, after - 1, (one, two)


def intersection(first: Dfa, second: Dfa) -> Dfa:
    """Texts of both."""
    if first == second or second.is_everything:
        return first
    if first.is_everything:
        return second
    return _combined(first, second, lambda one, two: one and two).trimmed()


def unite(first: Dfa, second: Dfa) -> Dfa:
    """Texts of either."""
    if first == second or second.is_empty or first.is_everything:
        return first
    if first.is_empty or second.is_everything:
        return second
    return _combined(first, second, lambda one, two: one or two).trimmed()


def difference(first: Dfa, second: Dfa) -> Dfa:
    """Texts of the first that are not in the second."""
    if second.is_empty:
        return first
    return _combined(first, second, lambda one, two: one and not two).trimmed()


def inverse(dfa: Dfa) -> Dfa:
    """All other texts."""
    return difference(EVERYTHING, dfa)


def of_texts(texts: Iterable[str]) -> Dfa:
    """Exactly these texts, as a tree of their common beginnings."""
    branches: list[dict[int, int]] = [{}]
    ends: set[int] = set()
    for text in texts:
        state = 0
        for letter in text:
            code = ord(letter)
            if code not in branches[state]:
                branches[state][code] = len(branches)
                branches.append({})
                if len(branches) > 10 * MAX_STATES:
                    raise TooLarge(f"a list of texts has over {10 * MAX_STATES} characters")
            state = branches[state][code]
        ends.add(state)
    edges = tuple(tuple((code, code, to) for code, to in sorted(b.items())) for b in branches)
    return Dfa(edges, tuple(state in ends for state in range(len(branches)))).trimmed()
