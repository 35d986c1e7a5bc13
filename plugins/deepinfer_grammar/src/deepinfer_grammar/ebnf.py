"""What does an EBNF text mean?

Rules ``name ::= expression``; literals in double quotes with the escapes ``\\n \\t \\r \\" \\\\
\\xHH \\uHHHH \\UHHHHHHHH``; character classes ``[a-z]`` and ``[^...]`` over Unicode characters;
sequence by blanks, ``|``, parentheses, ``* + ?``, ``{n}``, ``{n,}``, ``{n,m}``; ``#`` starts a
comment. A rule goes on over line ends until the next ``name ::=``. Rules may be left-recursive,
ambiguous and empty.
"""

from __future__ import annotations

import re

from deepinfer_grammar.errors import TextFault
from deepinfer_grammar.regular.charset import CharSet, complement, union
from deepinfer_grammar.rules import (
    EMPTY,
    Choice,
    Class,
    Expression,
    Reference,
    Repeat,
    RuleSet,
    Sequence,
    Text,
    productive,
    references,
)

__all__ = ["endless_rule", "parse_ebnf", "start_of"]

MAX_REPEAT = 10_000
"""Largest bound of a repetition."""

MAX_DEPTH = 100
"""Most brackets inside each other."""

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_BOUNDS = re.compile(r"\{\s*(\d+)\s*(?:(,)\s*(\d*)\s*)?\}")
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "f": "\f", "v": "\v", "b": "\b", "a": "\a"}
_PREFIX = "u_"


def parse_ebnf(text: str, root: str = "root") -> RuleSet:
    """Read rules; the start rule is a new one, so that the root may refer to itself.

    Raises:
        TextFault: with the place.
    """
    reader = _Reader(text)
    rules = reader.rules()
    if root not in rules:
        raise TextFault(f"no rule is called {root!r}", 0, hint=f"write {root} ::= ...")
    for name, place in reader.mentioned:
        if name not in rules:
            raise TextFault(f"no rule is called {name!r}", place)
    grammar = RuleSet()
    grammar.add("start", Reference(_PREFIX + root))
    for name, expression in rules.items():
        grammar.add(_PREFIX + name, expression)
    return grammar


def endless_rule(text: str, root: str = "root") -> tuple[str, int]:
    """The rule that keeps rules with a text from being all that the root needs.

    Args:
        text: rules that were read before; no text of the root ever ends.
        root: name of the start rule.

    Returns:
        Its name, and where it stands.
    """
    reader = _Reader(text)
    rules = {_PREFIX + name: expression for name, expression in reader.rules().items()}
    live = productive(rules)
    name: str | None = _PREFIX + root
    seen: dict[str, None] = {}
    while name is not None and name not in seen:
        seen[name] = None
        name = next((one for one in references(rules[name]) if one not in live), None)
    last = (name or next(reversed(seen))).removeprefix(_PREFIX)
    return last, reader.starts[last]


def start_of(text: str, root: str = "root") -> int:
    """Where the start rule of rules that were read before stands."""
    reader = _Reader(text)
    reader.rules()
    return reader.starts[root]


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.starts: dict[str, int] = {}
        self.mentioned: list[tuple[str, int]] = []

    def rules(self) -> dict[str, Expression]:
        """All rules by name."""
        found: dict[str, Expression] = {}
        self._blank()
        while self.at < len(self.text):
            start = self.at
            name = self._rule_start()
            if name is None:
                raise TextFault("expected 'name ::='", start)
            if name in found:
                raise TextFault(f"two rules are called {name!r}", start)
            self.starts[name] = start
            found[name] = self._alternatives(0)
            if self.at < len(self.text) and self._peek_rule() is None:
                raise TextFault(f"unexpected {self.text[self.at]!r}", self.at)
        return found

    def _blank(self) -> None:
        self.at = self._after_blank()

    def _after_blank(self) -> int:
        found = _BLANK.match(self.text, self.at)
        assert found is not None
        return found.end()

    def _peek_rule(self) -> tuple[str, int] | None:
        name = _NAME.match(self.text, self.at)
        if name is None:
            return None
        gap = _BLANK.match(self.text, name.end())
        assert gap is not None
        if not self.text.startswith("::=", gap.end()):
            return None
        return name.group(), gap.end() + 3

    def _rule_start(self) -> str | None:
        found = self._peek_rule()
        if found is None:
            return None
        name, self.at = found
        self._blank()
        return name

    def _alternatives(self, depth: int) -> Expression:
        if depth > MAX_DEPTH:
            raise TextFault(f"over {MAX_DEPTH} brackets inside each other", self.at)
        start = self.at
        options = [self._sequence(depth)]
        while self.at < len(self.text) and self.text[self.at] == "|":
            self.at += 1
            self._blank()
            options.append(self._sequence(depth))
        if self.at == start and depth == 0:
            raise TextFault("expected an expression", start, hint='the empty text is ""')
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self, depth: int) -> Expression:
        parts: list[Expression] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            if self._peek_rule() is not None:
                break
            parts.append(self._repeated(self._atom(depth)))
            self._blank()
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _atom(self, depth: int) -> Expression:
        start = self.at
        letter = self.text[start]
        if letter == '"':
            return self._literal()
        if letter == "[":
            return Class(self._class())
        if letter == "(":
            self.at += 1
            self._blank()
            inner = self._alternatives(depth + 1)
            if self.at >= len(self.text) or self.text[self.at] != ")":
                raise TextFault("a bracket without ')'", start)
            self.at += 1
            return inner
        name = _NAME.match(self.text, start)
        if name is None:
            raise TextFault(f"unexpected {letter!r}", start)
        self.at = name.end()
        self.mentioned.append((name.group(), start))
        return Reference(_PREFIX + name.group())

    def _repeated(self, atom: Expression) -> Expression:
        while self.at < len(self.text):
            if self.text.startswith("{", self._after_blank()):
                self._blank()
            start = self.at
            letter = self.text[start]
            bounds = _BOUNDS.match(self.text, start)
            if letter in "*+?":
                low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[letter]
                self.at += 1
            elif bounds is not None:
                low, comma, last = int(bounds[1]), bounds[2], bounds[3]
                high = low if not comma else int(last) if last else None
                self.at = bounds.end()
            elif letter == "{":
                raise TextFault("expected {n}, {n,} or {n,m}", start)
            else:
                break
            if high is not None and high < low:
                raise TextFault(f"a repetition from {low} to {high}", start)
            if max(low, high or 0) > MAX_REPEAT:
                raise TextFault(f"a repetition over {MAX_REPEAT} times", start)
            atom = Repeat(atom, low, high)
        return atom

    def _literal(self) -> Expression:
        start = self.at
        self.at += 1
        letters: list[str] = []
        while True:
            if self.at >= len(self.text) or self.text[self.at] == "\n":
                raise TextFault("a literal without closing quote", start)
            if self.text[self.at] == '"':
                self.at += 1
                break
            letters.append(self._letter())
        return Text("".join(letters)) if letters else EMPTY

    def _letter(self) -> str:
        start = self.at
        letter = self.text[start]
        self.at += 1
        if letter != "\\":
            return letter
        if self.at >= len(self.text):
            raise TextFault("a backslash at the end", start)
        kind = self.text[self.at]
        self.at += 1
        width = {"x": 2, "u": 4, "U": 8}.get(kind)
        if width is not None:
            digits = self.text[self.at : self.at + width]
            if not re.fullmatch(f"[0-9a-fA-F]{{{width}}}", digits):
                raise TextFault(f"'\\{kind}' needs {width} hexadecimal digits", start)
            self.at += width
            code = int(digits, 16)
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                raise TextFault(f"U+{code:X} is no character", start)
            return chr(code)
        if kind in _LETTERS:
            return _LETTERS[kind]
        if kind.isalnum():
            raise TextFault(f"unknown escape '\\{kind}'", start)
        return kind

    def _class(self) -> CharSet:
        start = self.at
        self.at += 1
        is_negative = self.text.startswith("^", self.at)
        self.at += is_negative
        ranges: list[tuple[int, int]] = []
        while True:
            if self.at >= len(self.text) or self.text[self.at] == "\n":
                raise TextFault("a class without ']'", start)
            if self.text[self.at] == "]":
                self.at += 1
                break
            place = self.at
            low = high = ord(self._letter())
            if self.text.startswith("-", self.at) and not self.text.startswith("-]", self.at):
                self.at += 1
                if self.at >= len(self.text):
                    raise TextFault("a class without ']'", start)
                high = ord(self._letter())
            if high < low:
                raise TextFault("a range from a higher to a lower character", place)
            ranges.append((low, high))
        chars = union(ranges)
        return complement(chars) if is_negative else chars
