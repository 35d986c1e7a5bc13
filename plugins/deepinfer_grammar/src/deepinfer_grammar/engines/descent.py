"""How deep do rules go, and how is a library called that calls itself as deep?

llguidance reads rules by descending into each one where it is mentioned first. A thread without
room for it takes the whole process with it, and how much room a thread has is up to whoever started
the process. So it is called in a thread of its own, with a stack for just these rules.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from deepinfer_grammar.errors import GrammarFault
from deepinfer_grammar.rules import Choice, Expression, Reference, Repeat, RuleSet, Sequence

__all__ = ["MOST_LEVELS", "levels_of", "with_levels"]

_Found = TypeVar("_Found")

MOST_LEVELS = 32_768
"""Most levels of rules and brackets; their stack has 257 MiB, of which the system gives what is
used."""

_LEVEL_BYTES = 8192
"""Stack of a level: llguidance 1.9.1 took 3,200 bytes for a rule and 1,900 for a bracket, found by
bisection of the depth at which a thread of 4 MiB ends. The rest is for other builds of it."""

_BASE_BYTES = 1 << 20
"""Stack for what is no level."""

_SIZE = threading.Lock()
"""Held while the size of stacks to come, one for the process, is not the usual one."""


def levels_of(grammar: RuleSet) -> int:
    """Levels at which rules and brackets lie inside each other, each rule where it is first met.

    Raises:
        GrammarFault: there are over ``MOST_LEVELS``.
    """
    met, most = {grammar.start}, 0
    waiting = [_met_in(grammar.rules[grammar.start], 1)]
    while waiting:
        name, depth = next(waiting[-1], ("", 0))
        most = max(most, depth)
        if not depth:
            waiting.pop()
        elif name and name not in met:
            met.add(name)
            waiting.append(_met_in(grammar.rules[name], depth + 1))
    if most > MOST_LEVELS:
        raise GrammarFault(
            f"#: the rules of the grammar lie {most:,} levels inside each other, and"
            f" grammar.llguidance can take {MOST_LEVELS:,}",
            hint="make it smaller, or take grammar.xgrammar",
        )
    return most


def _met_in(expression: Expression, depth: int) -> Iterator[tuple[str, int]]:
    """Rules in the order of their mention, with the levels around each; "" for what is no rule."""
    match expression:
        case Reference(name):
            yield name, depth
        case Sequence(parts) | Choice(parts):
            for part in parts:
                yield from _met_in(part, depth + isinstance(part, Choice))
        case Repeat(part):
            yield from _met_in(part, depth + 1)
        case _:
            yield "", depth


def with_levels(levels: int, call: Callable[[], _Found]) -> _Found:
    """Call something in a thread whose stack has room for so many levels; raises what it raises."""
    found: list[_Found] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:  # noqa: BLE001 - it is raised in the other thread
            errors.append(error)

    thread = threading.Thread(target=run, name="grammar-opening")
    with _SIZE:
        usual = threading.stack_size(_BASE_BYTES + levels * _LEVEL_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(usual)
    try:
        thread.join()
    finally:
        thread.join()  # what a signal raises here must not leave the call running
    if errors:
        raise errors[0]
    return found[0]
