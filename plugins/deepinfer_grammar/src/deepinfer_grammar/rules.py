"""What is a grammar made of, for every engine?

A ``RuleSet`` has named rules over characters, not bytes or tokens. Both engines print it in their
own notation. Nothing in it is a lexer: alternatives are unordered and repetition is not greedy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from deepinfer_grammar.errors import TooLarge
from deepinfer_grammar.regular.charset import CharSet

__all__ = [
    "EMPTY",
    "MAX_RULES",
    "NOTHING",
    "Choice",
    "Class",
    "Control",
    "Expression",
    "Reference",
    "Repeat",
    "RuleSet",
    "Sequence",
    "Text",
    "productive",
    "pruned",
    "references",
    "renamed",
]

MAX_RULES = 200_000
"""Most rules of a grammar; engines need milliseconds for each."""


@dataclass(frozen=True, slots=True)
class Text:
    """Exactly this text, not empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Class:
    """One character of a set."""

    chars: CharSet


@dataclass(frozen=True, slots=True)
class Control:
    """One control token."""

    token_id: int


@dataclass(frozen=True, slots=True)
class Reference:
    """A rule by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """Parts in order; none is the empty text."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the parts; none is nothing at all."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """``low`` to ``high`` times the part; None has no upper bound."""

    part: Expression
    low: int
    high: int | None


Expression = Text | Class | Control | Reference | Sequence | Choice | Repeat

EMPTY = Sequence(())
NOTHING = Choice(())


@dataclass(slots=True)
class RuleSet:
    """Rules by name, and the one that a text must match.

    Attributes:
        rules: in the order in which they were added.
        start: name of the first rule; no rule refers to it.
        followed: what stands behind each match of a rule, if anything does, by name of the rule;
            true anyway, and of use to an engine that can look ahead.
    """

    rules: dict[str, Expression] = field(default_factory=dict)
    start: str = "start"
    followed: dict[str, Expression] = field(default_factory=dict)

    def add(self, name: str, expression: Expression) -> Reference:
        """Add a rule.

        Raises:
            TooLarge: the grammar has too many rules.
        """
        if len(self.rules) >= MAX_RULES:
            raise TooLarge(f"the grammar has over {MAX_RULES} rules")
        self.rules[name] = expression
        return Reference(name)

    def fresh(self, prefix: str) -> str:
        """A name that no rule has yet, if each caller uses a prefix of its own."""
        return f"{prefix}_{len(self.rules)}"


def references(expression: Expression) -> Iterator[str]:
    """Names of the rules that an expression mentions."""
    match expression:
        case Reference(name):
            yield name
        case Sequence(parts) | Choice(parts):
            for part in parts:
                yield from references(part)
        case Repeat(part):
            yield from references(part)


def productive(rules: dict[str, Expression]) -> set[str]:
    """Rules from which some finite text can come."""
    found: set[str] = set()
    users: dict[str, set[str]] = {}
    for name, expression in rules.items():
        for used in references(expression):
            users.setdefault(used, set()).add(name)
    waiting = list(rules)
    while waiting:
        name = waiting.pop()
        if name not in found and name in rules and _can_end(rules[name], found):
            found.add(name)
            waiting.extend(users.get(name, ()))
    return found


def _can_end(expression: Expression, known: set[str]) -> bool:
    match expression:
        case Text() | Control():
            return True
        case Class(chars):
            return bool(chars)
        case Reference(name):
            return name in known
        case Sequence(parts):
            return all(_can_end(part, known) for part in parts)
        case Choice(parts):
            return any(_can_end(part, known) for part in parts)
        case Repeat(part, low):
            return low == 0 or _can_end(part, known)


def pruned(grammar: RuleSet) -> RuleSet | None:
    """The grammar without parts that match nothing or are never used; None if nothing is left."""
    live = productive(grammar.rules)
    if grammar.start not in live:
        return None
    kept = {name: _without(grammar.rules[name], live) for name in grammar.rules if name in live}
    kept = _without_detours(kept)
    used, waiting = {grammar.start}, [grammar.start]
    while waiting:
        for name in references(kept[waiting.pop()]):
            if name not in used:
                used.add(name)
                waiting.append(name)
    rules = {name: rule for name, rule in kept.items() if name in used}
    followed = {name: rule for name, rule in grammar.followed.items() if name in used}
    return RuleSet(rules, grammar.start, followed)


def _without_detours(rules: dict[str, Expression]) -> dict[str, Expression]:
    """Rules that refer past rules which are nothing but another one; each costs engines a level."""
    target = {name: rule.name for name, rule in rules.items() if isinstance(rule, Reference)}

    def end(name: str) -> str:
        seen = {name}
        while (following := target.get(name)) is not None and following not in seen:
            seen.add(following)
            name = following
        return name

    final = {name: end(name) for name in target}
    return {name: _redirected(rule, final) for name, rule in rules.items()}


def _redirected(expression: Expression, final: dict[str, str]) -> Expression:
    match expression:
        case Reference(name):
            return Reference(final.get(name, name))
        case Sequence(parts):
            return Sequence(tuple(_redirected(part, final) for part in parts))
        case Choice(parts):
            return Choice(tuple(_redirected(part, final) for part in parts))
        case Repeat(part, low, high):
            return Repeat(_redirected(part, final), low, high)
    return expression


def _without(expression: Expression, live: set[str]) -> Expression:
    """The expression without branches that can never end."""
    match expression:
        case Choice(parts):
            rest = tuple(_without(part, live) for part in parts if _can_end(part, live))
            return rest[0] if len(rest) == 1 else Choice(rest)
        case Sequence(parts):
            return Sequence(tuple(_without(part, live) for part in parts))
        case Repeat(part, low, high):
            if high == 0 or not _can_end(part, live):
                return EMPTY
            return Repeat(_without(part, live), low, high)
    return expression


def renamed(expression: Expression, prefix: str) -> Expression:
    """The expression with a prefix before the name of each rule that it mentions."""
    match expression:
        case Reference(name):
            return Reference(prefix + name)
        case Sequence(parts):
            return Sequence(tuple(renamed(part, prefix) for part in parts))
        case Choice(parts):
            return Choice(tuple(renamed(part, prefix) for part in parts))
        case Repeat(part, low, high):
            return Repeat(renamed(part, prefix), low, high)
    return expression
