"""Does a text belong to an EBNF grammar? A recogniser after Earley, over characters.

A judge for what masks let through, so it shares nothing with the code that makes them: a reader
of its own, no automata, no rules of engines. Earley (1970), with the treatment of empty rules of
Aycock and Horspool (2002).
"""

from __future__ import annotations

import re

__all__ = ["recognises"]

Symbol = str | tuple[bool, frozenset[tuple[int, int]]]
"""A rule's name, or a class: whether it is negated, and its ranges."""

_TOKENS = re.compile(
    r'\s+|#[^\n]*|"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|::=|[A-Za-z_][\w-]*|\{[\d, ]+\}|[|()*+?]'
)


class _Grammar:
    """Rules as lists of sequences of symbols; brackets and repetition become rules of their own."""

    def __init__(self, text: str) -> None:
        found = _TOKENS.findall(text)
        self.tokens = [one for one in found if not one[0].isspace() and one[0] != "#"]
        self.at = 0
        self.rules: dict[str, list[list[Symbol]]] = {}
        while self.at < len(self.tokens):
            name = self.tokens[self.at]
            self.at += 2
            self.rules[name] = self.alternatives()

    def alternatives(self) -> list[list[Symbol]]:
        options = [self.sequence()]
        while self.at < len(self.tokens) and self.tokens[self.at] == "|":
            self.at += 1
            options.append(self.sequence())
        return options

    def sequence(self) -> list[Symbol]:
        parts: list[Symbol] = []
        while self.at < len(self.tokens) and self.tokens[self.at] not in "|)":
            if self.tokens[self.at + 1 : self.at + 2] == ["::="]:
                break
            atom = self.atom()
            while self.at < len(self.tokens) and self.tokens[self.at][0] in "*+?{":
                atom = [self.repeated(atom, self.tokens[self.at])]
                self.at += 1
            parts += atom
        return parts

    def atom(self) -> list[Symbol]:
        token = self.tokens[self.at]
        self.at += 1
        if token == "(":
            name = self.fresh(self.alternatives())
            self.at += 1
            return [name]
        if token[0] == '"':
            return [(False, frozenset({(ord(x), ord(x))})) for x in _unescaped(token[1:-1])]
        if token[0] == "[":
            return [_class(token[1:-1])]
        return [token]

    def fresh(self, options: list[list[Symbol]]) -> str:
        name = f"({len(self.rules)})"
        self.rules[name] = options
        return name

    def repeated(self, atom: list[Symbol], mark: str) -> Symbol:
        low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(mark, (0, None))
        if mark[0] == "{":
            bounds = mark[1:-1].replace(" ", "").split(",")
            low = int(bounds[0])
            high = low if len(bounds) == 1 else int(bounds[1]) if bounds[1] else None
        if high is None:
            more = self.fresh([])
            self.rules[more] = [[], [*atom, more]]
            return self.fresh([[*atom * low, more]])
        return self.fresh([atom * count for count in range(low, high + 1)])


def _unescaped(text: str) -> list[str]:
    def letter(found: re.Match[str]) -> str:
        code = found[1]
        if code[0] in "xuU":
            return chr(int(code[1:], 16))
        return {"n": "\n", "t": "\t", "r": "\r"}.get(code, code)

    pattern = r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)"
    return list(re.sub(pattern, letter, text))


def _class(text: str) -> Symbol:
    is_negated = text.startswith("^")
    letters = _unescaped(text[is_negated:])
    ranges: set[tuple[int, int]] = set()
    while letters:
        first = letters.pop(0)
        if len(letters) > 1 and letters[0] == "-":
            letters.pop(0)
            ranges.add((ord(first), ord(letters.pop(0))))
        else:
            ranges.add((ord(first), ord(first)))
    return is_negated, frozenset(ranges)


def recognises(grammar: str, root: str, text: str) -> bool:
    """Whether the whole text comes from a rule."""
    rules = _Grammar(grammar).rules
    empty = _empty_rules(rules)
    chart: list[dict[tuple[str, int, int, int], None]] = [{} for _ in range(len(text) + 1)]
    chart[0] = {(root, number, 0, 0): None for number in range(len(rules[root]))}
    done = False
    for place in range(len(text) + 1):
        waiting = list(chart[place])
        while waiting:
            name, number, dot, origin = waiting.pop()
            parts = rules[name][number]
            fresh: list[tuple[str, int, int, int]] = []
            if dot == len(parts):
                done = done or (name == root and origin == 0 and place == len(text))
                fresh = [
                    (other, n, d + 1, o)
                    for other, n, d, o in chart[origin]
                    if d < len(rules[other][n]) and rules[other][n][d] == name
                ]
            elif isinstance(part := parts[dot], str):
                fresh = [(part, n, 0, place) for n in range(len(rules[part]))]
                if part in empty:
                    fresh.append((name, number, dot + 1, origin))
            elif place < len(text) and _matches(part, text[place]):
                chart[place + 1][name, number, dot + 1, origin] = None
            for item in fresh:
                if item not in chart[place]:
                    chart[place][item] = None
                    waiting.append(item)
    return done


def _matches(part: Symbol, letter: str) -> bool:
    assert isinstance(part, tuple)
    is_negated, ranges = part
    return any(low <= ord(letter) <= high for low, high in ranges) != is_negated


def _empty_rules(rules: dict[str, list[list[Symbol]]]) -> set[str]:
    """Rules from which the empty text can come."""
    found: set[str] = set()
    while True:
        more = {
            name
            for name, options in rules.items()
            if any(all(isinstance(p, str) and p in found for p in parts) for parts in options)
        }
        if more == found:
            return found
        found = more
