"""How does an automaton become rules?

One rule a state, right-linear: an engine that follows a last reference without growing its stack
walks them as the automaton itself.
"""

from __future__ import annotations

from deepinfer_grammar.regular.charset import CharSet, union
from deepinfer_grammar.regular.dfa import Dfa
from deepinfer_grammar.rules import (
    EMPTY,
    NOTHING,
    Choice,
    Class,
    Expression,
    Reference,
    RuleSet,
    Sequence,
    Text,
)

__all__ = ["add_automaton"]

INLINED = 24
"""Most states written inside one rule, each in the brackets of the one before."""


def _as_written(chars: CharSet) -> Expression:
    """Each character stands for itself."""
    if len(chars) == 1 and chars[0][0] == chars[0][1]:
        return Text(chr(chars[0][0]))
    return Class(chars)


def add_automaton(
    grammar: RuleSet, dfa: Dfa, prefix: str, followed: Expression | None = None
) -> Expression:
    """Add the rules of an automaton; gives what matches its language.

    Args:
        grammar: takes the rules.
        dfa: the automaton.
        prefix: of their names.
        followed: what stands behind each match, if anything does; None: not known.
    """
    if dfa.is_empty:
        return NOTHING
    base = grammar.fresh(prefix)
    entered = _entered_twice(dfa)
    for state in range(len(dfa.edges)):
        if state in entered:
            grammar.add(f"{base}s{state}", _state(dfa, state, base, entered))
            if followed is not None:
                grammar.followed[f"{base}s{state}"] = followed
    return Reference(f"{base}s0")


def _entered_twice(dfa: Dfa) -> set[int]:
    """States that need a rule: the start, and those that more than one edge leads to.

    The others are written where their one edge ends, at most ``INLINED`` deep.
    """
    sources: dict[int, set[int]] = {}
    for state, edges in enumerate(dfa.edges):
        for _, _, to in edges:
            sources.setdefault(to, set()).add(state)
    chosen = {0} | {state for state, found in sources.items() if len(found) > 1}
    chosen |= {state for state, found in sources.items() if state in found}
    depth = dict.fromkeys(chosen, 0)
    waiting = list(chosen)
    while waiting:
        state = waiting.pop()
        for _, _, to in dfa.edges[state]:
            if to in depth:
                continue
            depth[to] = depth[state] + 1
            if depth[to] > INLINED:
                chosen.add(to)
                depth[to] = 0
            waiting.append(to)
    return chosen


def _state(dfa: Dfa, state: int, base: str, entered: set[int]) -> Expression:
    targets: dict[int, list[tuple[int, int]]] = {}
    for low, high, to in dfa.edges[state]:
        targets.setdefault(to, []).append((low, high))
    options: list[Expression] = [EMPTY] if dfa.accepting[state] else []
    for to, ranges in targets.items():
        rest: Expression
        if to in entered:
            has_end = not dfa.edges[to] and dfa.accepting[to]
            rest = EMPTY if has_end else Reference(f"{base}s{to}")
        else:
            rest = _state(dfa, to, base, entered)
        options.append(_joined(_as_written(union(ranges)), rest))
    return options[0] if len(options) == 1 else Choice(tuple(options))


def _joined(first: Expression, rest: Expression) -> Expression:
    if rest == EMPTY:
        return first
    tail = rest.parts if isinstance(rest, Sequence) else (rest,)
    if isinstance(first, Text) and tail and isinstance(tail[0], Text):
        joined = Text(first.text + tail[0].text)
        return joined if len(tail) == 1 else Sequence((joined, *tail[1:]))
    return Sequence((first, *tail))
