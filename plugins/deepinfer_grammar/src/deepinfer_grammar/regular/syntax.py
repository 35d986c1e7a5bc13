"""What does the text of a regular expression mean?

Two dialects. ``schema`` is that of JSON Schema (ECMA-262 with the flag ``u``): ``\\d`` and ``\\w``
are ASCII, ``\\s`` is Unicode white space. ``plain`` is for requests that are a regular expression:
libraries differ on whether ``\\d``, ``\\w``, ``\\s`` and ``\\b`` are ASCII or Unicode, so each of
these, and each of their opposites, means what both readings allow, wherever it stands. Both refuse
back-references, atomic groups and possessive repetition, with the place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from deepinfer_grammar.errors import TextFault
from deepinfer_grammar.regular.classes import ClassReader, dot, escaped_class
from deepinfer_grammar.regular.tree import (
    MAX_PARTS,
    Alternation,
    Assertion,
    Chars,
    Concatenation,
    Look,
    Regex,
    Repetition,
    Sizes,
)

__all__ = ["Dialect", "parse", "parsed_parts"]

Dialect = Literal["plain", "schema"]

MAX_REPEAT = 65535
"""Largest bound of a repetition, of whatever; ``MAX_PARTS`` counts what is repeated, too."""

MAX_DEPTH = 200
"""Most groups inside each other."""


@dataclass(frozen=True, slots=True)
class _Flags:
    ignore_case: bool = False
    multiline: bool = False
    dot_all: bool = False
    verbose: bool = False


def parse(text: str, dialect: Dialect) -> Regex:
    """The tree of an expression.

    Raises:
        TextFault: the text is wrong, or asks for more than a regular language.
    """
    reader = _Reader(text, dialect)
    tree = reader.alternatives(_Flags(), 0)
    if reader.at < len(text):
        raise TextFault("unmatched ')'", reader.at)
    return tree


def parsed_parts(text: str, dialect: Dialect) -> list[tuple[int, Regex]]:
    """The parts of the first alternative, each with the place where it begins; raises the same."""
    reader = _Reader(text, dialect)
    reader.alternatives(_Flags(), 0)
    return reader.first_parts


class _Reader(ClassReader):
    """Reads from left to right; ``at`` is the next character."""

    def __init__(self, text: str, dialect: Dialect) -> None:
        super().__init__(text, dialect)
        self._sizes = Sizes()
        self.first_parts: list[tuple[int, Regex]] = []
        """Of the first alternative outside groups, with their places."""

    def alternatives(self, flags: _Flags, depth: int) -> Regex:
        """Everything up to the end or a closing bracket."""
        if depth > MAX_DEPTH:
            raise TextFault(f"over {MAX_DEPTH} groups inside each other", self.at)
        options: list[Regex] = []
        parts: list[Regex] = []
        while not self.ended and self.peek != ")":
            if self.take("|"):
                options.append(_joined(parts))
                parts = []
                continue
            if self.peek == "(" and (changed := self._flag_group(flags)) is not None:
                flags = changed
                continue
            if flags.verbose and self._skip_blank():
                continue
            start = self.at
            atom = self._atom(flags, depth)
            parts.append(self._repeated(atom, flags))
            if not depth and not options:
                self.first_parts.append((start, parts[-1]))
        options.append(_joined(parts))
        return options[0] if len(options) == 1 else Alternation(tuple(options))

    def _skip_blank(self) -> bool:
        if self.peek.isspace():
            self.at += 1
            return True
        if self.peek == "#":
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end + 1
            return True
        return False

    def _flag_group(self, flags: _Flags) -> _Flags | None:
        """``(?i)``: flags for the rest of the group; None if this is another group."""
        if not self.text.startswith("(?", self.at):
            return None
        end = self.at + 2
        while end < len(self.text) and (self.text[end].isalpha() or self.text[end] == "-"):
            end += 1
        letters = self.text[self.at + 2 : end]
        if end < len(self.text) and self.text[end] == ")" and letters and letters != "-":
            changed = self._changed(flags, letters)
            self.at = end + 1
            return changed
        return None

    def _changed(self, flags: _Flags, letters: str) -> _Flags:
        names = {"i": "ignore_case", "m": "multiline", "s": "dot_all", "x": "verbose"}
        on, _, off = letters.partition("-")
        values = {name: getattr(flags, name) for name in names.values()}
        for group, value in ((on, True), (off, False)):
            for letter in group:
                if letter in names:
                    values[names[letter]] = value
                elif letter not in "uaU" or letter == "U" or self.dialect == "schema":
                    raise TextFault(f"unknown flag {letter!r}", self.at)
        return _Flags(**values)

    def _atom(self, flags: _Flags, depth: int) -> Regex:
        start = self.at
        letter = self.next()
        self.ignores_case = flags.ignore_case
        match letter:
            case "(":
                return self._group(flags, depth, start)
            case "[":
                return Chars(self.bracket(start))
            case ".":
                return Chars(dot(self.dialect, all_characters=flags.dot_all))
            case "^":
                return Assertion("line_start" if flags.multiline else "start")
            case "$":
                return Assertion("line_end" if flags.multiline else "end")
            case "\\":
                return self._escape(start)
            case "*" | "+" | "?":
                raise TextFault(f"nothing to repeat before {letter!r}", start)
            case "{" if self.bounds_at(start) is not None:
                raise TextFault("nothing to repeat before '{'", start)
        if letter in "{}]" and self.dialect == "schema":
            raise TextFault(f"{letter!r} needs a backslash", start)
        return self._letter(letter)

    def _escape(self, start: int) -> Regex:
        if self.ended:
            raise TextFault("a backslash at the end", start)
        letter = self.peek
        places = {"b": "boundary", "B": "no_boundary"}
        if self.dialect == "plain":
            places = {"b": "sure_boundary", "B": "sure_no_boundary", "A": "start"}
            places |= dict.fromkeys("zZ", "end")
        if letter in places:
            self.at += 1
            return Assertion(places[letter])  # type: ignore[arg-type]
        if letter in "123456789":
            raise TextFault("back-references are not regular", start)
        if letter == "k" or (letter == "g" and self.dialect == "plain"):
            raise TextFault("back-references are not regular", start)
        if letter == "Q" and self.dialect == "plain":
            end = self.text.find("\\E", self.at)
            quoted = self.text[self.at + 1 : len(self.text) if end < 0 else end]
            self.at = len(self.text) if end < 0 else end + 2
            return Concatenation(tuple(map(self._letter, quoted)))
        named = escaped_class(self)
        return Chars(self.folded(self.escaped_letter(start)) if named is None else named)

    def _letter(self, letter: str) -> Regex:
        return Chars(self.folded(((ord(letter), ord(letter)),)))

    def _group(self, flags: _Flags, depth: int, start: int) -> Regex:
        look: tuple[bool, bool] | None = None
        if self.take("?"):
            if self.take("#"):
                end = self.text.find(")", self.at)
                if end < 0:
                    raise TextFault("a comment without end", start)
                self.at = end + 1
                return Concatenation(())
            look, flags = self._group_kind(flags, start)
        elif not self.ended and self.peek == "*" and self.dialect == "plain":
            raise TextFault("nothing to repeat before '*'", self.at)
        is_negative = look is not None and look[1]
        self.is_negated ^= is_negative
        inner = self.alternatives(flags, depth + 1)
        self.is_negated ^= is_negative
        if not self.take(")"):
            raise TextFault("a group without ')'", start)
        if look is None:
            return inner
        return Look(inner, is_ahead=look[0], is_negative=look[1], position=start)

    def _group_kind(self, flags: _Flags, start: int) -> tuple[tuple[bool, bool] | None, _Flags]:
        for mark, kind in (
            (":", None),
            ("=", (True, False)),
            ("!", (True, True)),
            ("<=", (False, False)),
            ("<!", (False, True)),
        ):
            if self.take(mark):
                return kind, flags
        for mark in ("<", "P<"):
            if self.take(mark):
                end = self.text.find(">", self.at)
                name = self.text[self.at : end] if end >= 0 else ""
                if not name.isidentifier():
                    raise TextFault("a group name is not a word", self.at)
                if name in self.names:
                    raise TextFault(f"two groups have the name {name!r}", self.at)
                self.names.add(name)
                self.at = end + 1
                return None, flags
        if self.text.startswith(("P=", "P>"), self.at):
            raise TextFault("back-references are not regular", start)
        if not self.ended and self.peek == ">":
            raise TextFault("atomic groups are not regular", start)
        end = self.text.find(":", self.at)
        letters = self.text[self.at : end] if end >= 0 else ""
        if letters and all(x.isalpha() or x == "-" for x in letters):
            changed = self._changed(flags, letters)
            self.at = end + 1
            return None, changed
        raise TextFault("an unknown kind of group", start)

    def _repeated(self, atom: Regex, flags: _Flags) -> Regex:
        """The atom with all repetition marks behind it."""
        while True:
            while flags.verbose and not self.ended and self._skip_blank():
                pass
            start = self.at
            bounds = self._bounds()
            if bounds is None:
                return atom
            low, high = bounds
            if isinstance(atom, Repetition) and self.repeated_at == start:
                raise TextFault("a repetition is repeated", start, hint="write a group around it")
            if high is not None and high < low:
                raise TextFault(f"a repetition from {low} to {high}", start)
            if max(low, high or 0) > MAX_REPEAT:
                raise TextFault(f"a repetition over {MAX_REPEAT} times", start)
            if not self.ended and self.peek == "+":
                raise TextFault("possessive repetition is not regular", start)
            self.take("?")
            atom = Repetition(atom, low, high)
            if self._sizes.of(atom) > MAX_PARTS:
                raise TextFault(f"over {MAX_PARTS} parts with repetitions written out", start)
            self.repeated_at = self.at

    def _bounds(self) -> tuple[int, int | None] | None:
        if self.ended:
            return None
        for mark, low, high in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self.take(mark):
                return low, high
        if self.peek != "{":
            return None
        found = self.bounds_at(self.at)
        if found is None:
            return None
        low, high, end = found
        self.at = end
        return low, high


def _joined(parts: list[Regex]) -> Regex:
    return parts[0] if len(parts) == 1 else Concatenation(tuple(parts))
