"""Which automaton accepts exactly the texts of a regular expression?

Expressions become automata without look-around by Thompson's construction; assertions (``^``,
``$``, word boundaries) stay as edges that may be passed only between certain neighbours, which the
subset construction knows: a state of the result remembers of which sort the last character was.
Look-around at the top level is an intersection: what follows a look-ahead must both match the rest
and (not) begin with its part. Deeper inside, it is refused.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from deepinfer_grammar.errors import TextFault, TooLarge
from deepinfer_grammar.regular.charset import intersect
from deepinfer_grammar.regular.dfa import (
    EVERYTHING,
    MAX_STATES,
    Dfa,
    Edge,
    difference,
    intersection,
)
from deepinfer_grammar.regular.places import holds, sorts_of
from deepinfer_grammar.regular.tree import (
    MAX_PARTS,
    Alternation,
    Assertion,
    Chars,
    Concatenation,
    Language,
    Look,
    Place,
    Regex,
    Repetition,
    Sizes,
)

__all__ = ["automaton"]


def automaton(regex: Regex) -> Dfa:
    """The minimal automaton of the whole texts that match.

    Raises:
        TooLarge: it would have too many states.
        TextFault: look-around stands where it is not a condition on all that follows or precedes.
    """
    if _has_look(regex):
        return _with_looks(regex)
    return _determinised(_Parts().whole(regex))


def _has_look(regex: Regex) -> bool:
    """Whether look-around stands anywhere in it."""
    match regex:
        case Look():
            return True
        case Concatenation(parts) | Alternation(parts):
            return any(_has_look(part) for part in parts)
        case Repetition(part):
            return _has_look(part)
    return False


def _with_looks(regex: Regex) -> Dfa:
    """Resolve look-around from the left: every part before it is already plain."""
    if isinstance(regex, Alternation):
        result = Alternation(tuple(Language(automaton(part)) for part in regex.parts))
        return automaton(result)
    parts = list(_flattened(regex))
    for index, part in enumerate(parts):
        if not _has_look(part):
            continue
        before, after = parts[:index], parts[index + 1 :]
        if isinstance(part, Look):
            return _resolved(part, before, after)
        if isinstance(part, Alternation):
            options = [Concatenation((*before, option, *after)) for option in part.parts]
            return automaton(Alternation(tuple(Language(automaton(o)) for o in options)))
        raise TextFault("look-around inside a repetition", _look_position(part))
    raise AssertionError("a look was announced and not found")


def _resolved(look: Look, before: list[Regex], after: list[Regex]) -> Dfa:
    """The automaton of ``before``, a condition, ``after``."""
    anything = Language(EVERYTHING)
    if _has_look(look.part):
        raise TextFault("look-around inside look-around", look.position)
    ahead: set[Place] = {"end"}
    behind: set[Place] = {"start"}
    # Each part is an automaton of its own, which sees the edge of the text on one side only.
    if not (
        _places(Concatenation(tuple(before))) <= behind
        and _places(Concatenation(tuple(after))) <= ahead
        and _places(look.part) <= (ahead if look.is_ahead else behind)
    ):
        raise TextFault("look-around beside an inner anchor or word boundary", look.position)
    if look.is_ahead:
        condition = automaton(Concatenation((look.part, anything)))
        rest = automaton(Concatenation(tuple(after)))
        met = difference(rest, condition) if look.is_negative else intersection(rest, condition)
        return automaton(Concatenation((*before, Language(met))))
    condition = automaton(Concatenation((anything, look.part)))
    start = automaton(Concatenation(tuple(before)))
    met = difference(start, condition) if look.is_negative else intersection(start, condition)
    return automaton(Concatenation((Language(met), *after)))


def _flattened(regex: Regex) -> tuple[Regex, ...]:
    if isinstance(regex, Concatenation):
        return tuple(inner for part in regex.parts for inner in _flattened(part))
    if isinstance(regex, Repetition) and regex.low == regex.high == 1:
        return _flattened(regex.part)
    return (regex,)


def _places(regex: Regex) -> set[Place]:
    """The assertions in an expression."""
    match regex:
        case Assertion(place):
            return {place}
        case Concatenation(parts) | Alternation(parts):
            return set().union(*(_places(part) for part in parts))
        case Repetition(part):
            return _places(part)
    return set()


def _look_position(regex: Regex) -> int:
    match regex:
        case Look(position=position):
            return position
        case Concatenation(parts) | Alternation(parts):
            return next(_look_position(part) for part in parts if _has_look(part))
        case Repetition(part):
            return _look_position(part)
    raise AssertionError("no look here")


@dataclass(slots=True)
class _Parts:
    """An automaton with empty edges; ``empty`` edges may carry an assertion."""

    edges: list[list[Edge]] = field(default_factory=list)
    empty: list[list[tuple[int, Place | None]]] = field(default_factory=list)
    places: set[Place] = field(default_factory=set)
    end: int = 0

    def state(self) -> int:
        """One more state."""
        self.edges.append([])
        self.empty.append([])
        return len(self.edges) - 1

    def whole(self, regex: Regex) -> _Parts:
        """Build the expression from state 0 on.

        Raises:
            TooLarge: it would have too many states.
        """
        if Sizes().of(regex) > MAX_PARTS:
            raise TooLarge(
                f"the expression has over {MAX_PARTS} parts with repetitions written out"
            )
        start = self.state()
        self.end = self.add(regex, start)
        return self

    def add(self, regex: Regex, start: int) -> int:
        """Build an expression from a state on; gives the state in which it ends."""
        match regex:
            case Chars(chars):
                end = self.state()
                self.edges[start].extend((low, high, end) for low, high in chars)
                return end
            case Concatenation(parts):
                for part in parts:
                    start = self.add(part, start)
                return start
            case Alternation(parts):
                end = self.state()
                for part in parts:
                    first = self.state()
                    self.empty[start].append((first, None))
                    self.empty[self.add(part, first)].append((end, None))
                return end
            case Repetition(part, low, high):
                return self._repeat(part, low, high, start)
            case Assertion(place):
                end = self.state()
                self.places.add(place)
                self.empty[start].append((end, place))
                return end
            case Language(dfa):
                return self._embed(dfa, start)
            case Look(position=position):
                raise TextFault("look-around inside a repetition", position)

    def _repeat(self, part: Regex, low: int, high: int | None, start: int) -> int:
        for _ in range(low):
            start = self.add(part, start)
        if high is None:
            loop, end = self.state(), self.state()
            self.empty[start].append((loop, None))
            self.empty[self.add(part, loop)].append((loop, None))
            self.empty[loop].append((end, None))
            return end
        end = self.state()
        for _ in range(high - low):
            self.empty[start].append((end, None))
            start = self.add(part, start)
        self.empty[start].append((end, None))
        return end

    def _embed(self, dfa: Dfa, start: int) -> int:
        base = [self.state() for _ in dfa.edges]
        end = self.state()
        self.empty[start].append((base[0], None))
        for state, edges in enumerate(dfa.edges):
            self.edges[base[state]].extend((low, high, base[to]) for low, high, to in edges)
            if dfa.accepting[state]:
                self.empty[base[state]].append((end, None))
        return end

    def closure(self, states: frozenset[int], before: str, after: str) -> frozenset[int]:
        """All states reached without a character, between two neighbours."""
        found, waiting = set(states), list(states)
        while waiting:
            for to, place in self.empty[waiting.pop()]:
                if to not in found and (place is None or holds(place, before, after)):
                    found.add(to)
                    waiting.append(to)
        return frozenset(found)


def _determinised(parts: _Parts) -> Dfa:
    """The subset construction."""
    sorts = sorts_of(parts.places)
    start = (frozenset({0}), "edge")
    number = {start: 0}
    order = [start]
    edges: list[tuple[Edge, ...]] = []
    accepting: list[bool] = []
    for states, before in order:
        found: list[Edge] = []
        for sort, chars in sorts.items():
            reached = parts.closure(states, before, sort)
            for low, high, targets in _segments(parts, reached):
                for piece_low, piece_high in intersect(((low, high),), chars):
                    key = (targets, sort)
                    if key not in number:
                        number[key] = len(order)
                        order.append(key)
                        if len(order) > MAX_STATES:
                            raise TooLarge(f"the expression needs over {MAX_STATES} states")
                    found.append((piece_low, piece_high, number[key]))
        edges.append(tuple(sorted(found)))
        accepting.append(parts.end in parts.closure(states, before, "edge"))
    return Dfa(tuple(edges), tuple(accepting)).trimmed()


def _segments(parts: _Parts, states: frozenset[int]) -> list[tuple[int, int, frozenset[int]]]:
    """Ranges of characters with the states that each leads to."""
    pieces = [edge for state in states for edge in parts.edges[state]]
    if not pieces:
        return []
    events: dict[int, list[tuple[bool, int]]] = {}
    for low, high, to in pieces:
        events.setdefault(low, []).append((True, to))
        events.setdefault(high + 1, []).append((False, to))
    active: dict[int, int] = {}
    found: list[tuple[int, int, frozenset[int]]] = []
    cuts = sorted(events)
    for cut, after in itertools.pairwise(cuts):
        for opens, to in events[cut]:
            active[to] = active.get(to, 0) + (1 if opens else -1)
            if not active[to]:
                del active[to]
        if active:
            found.append((cut, after - 1, frozenset(active)))
    return found
