"""Which characters do brackets, escapes and named classes stand for?"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from deepinfer_grammar.errors import TextFault
from deepinfer_grammar.regular.case import folded_by_all, folded_by_any
from deepinfer_grammar.regular.charset import (
    ANY,
    CharSet,
    complement,
    of_text,
    unicode_category,
    union,
)
from deepinfer_grammar.regular.class_names import ASCII_SPACE, DIGIT, POSIX, SPACE, WORD, category

__all__ = ["ClassReader", "dot", "escaped_class", "wide_word"]

# Both readings of the opposites: Unicode's separators and the controls that Python counts.
WIDE_SPACE = union(SPACE, of_text("\u0085\u180e\u001c\u001d\u001e\u001f"))
# Alphabetic, though of no category of letters; and the two joiners of UTS 18.
_OTHER_LETTERS: CharSet = (
    (0x200C, 0x200D), (0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189),
)  # fmt: skip
LINE_ENDS = of_text("\n\r\u2028\u2029")

_CONTROLS = {"n": 10, "t": 9, "r": 13, "f": 12, "v": 11}
_BOUNDS = re.compile(r"\{(\d+)(?:(,)(\d*))?\}|\{,(\d+)\}")


def dot(dialect: str, *, all_characters: bool) -> CharSet:
    """What ``.`` stands for: ECMA-262 leaves out four line ends, other libraries one."""
    if all_characters:
        return ANY
    return complement(LINE_ENDS if dialect == "schema" else of_text("\n"))


def escaped_class(reader: ClassReader) -> CharSet | None:
    r"""``\d`` and its like, or ``\p{...}``, at the reader's place; None if it is another escape."""
    letter = reader.peek
    if letter in "pP":
        return _property(reader)
    if letter not in "dDwWsS":
        return None
    reader.at += 1
    return reader.opposite(letter.isupper(), lambda: _class_of(reader, letter.lower()))


def _class_of(reader: ClassReader, kind: str) -> CharSet:
    if reader.dialect != "plain":
        return {"d": DIGIT, "w": WORD, "s": SPACE}[kind]
    if reader.is_negated:
        return {"d": _wide_digits(), "w": wide_word(), "s": WIDE_SPACE}[kind]
    return {"d": DIGIT, "w": WORD, "s": ASCII_SPACE}[kind]


@cache
def _wide_digits() -> CharSet:
    return unicode_category("Nd") or DIGIT


@cache
def wide_word() -> CharSet:
    r"""What some reading counts as ``\w``: letters, marks, numbers, joiners, letters in circles."""
    groups = [unicode_category(name) or () for name in ("L", "M", "N", "Pc")]
    return union(WORD, *groups, _OTHER_LETTERS)


def _property(reader: ClassReader) -> CharSet:
    start = reader.at
    is_negative = reader.next() == "P"
    if reader.take("{"):
        end = reader.text.find("}", reader.at)
        if end < 0:
            raise TextFault("a property without '}'", start)
        name = reader.text[reader.at : end]
        reader.at = end + 1
    else:
        if reader.ended:
            raise TextFault("a property without a name", start)
        name = reader.next()
    if name.startswith("^"):
        is_negative, name = not is_negative, name[1:]
    name = name.removeprefix("General_Category=").removeprefix("gc=")
    chars = category(name)
    if chars is None:
        raise TextFault(f"unknown character property {name!r}", start)
    return reader.opposite(is_negative, lambda: chars)


class ClassReader:
    """A text, a place in it, and what single characters can be there.

    Attributes:
        is_negated: whether a character that is allowed here is one that the whole shuts out.
        ignores_case: whether characters stand for those of the other case too.
    """

    def __init__(self, text: str, dialect: str) -> None:
        self.text = text
        self.dialect = dialect
        self.at = 0
        self.repeated_at = -1
        self.names: set[str] = set()
        self.is_negated = False
        self.ignores_case = False

    def folded(self, chars: CharSet) -> CharSet:
        """What a set stands for here: under any reading of case if it is shut out, else all."""
        if not self.ignores_case:
            return chars
        return folded_by_any(chars) if self.is_negated else folded_by_all(chars)

    def opposite(self, is_negative: bool, read: Callable[[], CharSet]) -> CharSet:
        """A folded set, or all other characters than those of it."""
        self.is_negated ^= is_negative
        chars = self.folded(read())
        self.is_negated ^= is_negative
        return complement(chars) if is_negative else chars

    @property
    def ended(self) -> bool:
        """Whether nothing is left."""
        return self.at >= len(self.text)

    @property
    def peek(self) -> str:
        """The next character, which must exist."""
        return self.text[self.at]

    def next(self) -> str:
        """The next character, passed."""
        self.at += 1
        return self.text[self.at - 1]

    def take(self, mark: str) -> bool:
        """Pass a mark if it is here."""
        if self.text.startswith(mark, self.at):
            self.at += len(mark)
            return True
        return False

    def bounds_at(self, place: int) -> tuple[int, int | None, int] | None:
        """``{n}``, ``{n,}``, ``{n,m}`` at a place: the bounds and where they end."""
        found = _BOUNDS.match(self.text, place)
        if found is None:
            return None
        low, comma, high, only_high = found.groups()
        if only_high is not None:
            if self.dialect == "schema":
                return None
            return 0, int(only_high), found.end()
        if not comma:
            return int(low), int(low), found.end()
        return int(low), int(high) if high else None, found.end()

    def escaped_letter(self, start: int) -> CharSet:
        """The character that an escape stands for; the backslash is already passed."""
        letter = self.next()
        if letter in _CONTROLS:
            code = _CONTROLS[letter]
        elif letter in "xuU":
            code = self._hexadecimal(letter, start)
        elif letter == "0":
            code = self._octal(start)
        elif letter == "c" and not self.ended and self.peek.isascii() and self.peek.isalpha():
            code = ord(self.next().upper()) - 64
        elif letter in "ae" and self.dialect == "plain":
            code = {"a": 7, "e": 27}[letter]
        elif letter.isascii() and letter.isalnum():
            raise TextFault(f"unknown escape '\\{letter}'", start)
        else:
            code = ord(letter)
        return ((code, code),)

    def _octal(self, start: int) -> int:
        digits = ""
        while len(digits) < 2 and not self.ended and self.peek in "01234567":
            digits += self.next()
        if digits and self.dialect == "schema":
            raise TextFault("octal escapes are not part of the dialect", start)
        return int(digits or "0", 8)

    def _hexadecimal(self, letter: str, start: int) -> int:
        if self.take("{"):
            end = self.text.find("}", self.at)
            digits = self.text[self.at : end] if end >= 0 else ""
            self.at = end + 1
        else:
            width = {"x": 2, "u": 4, "U": 8}[letter]
            digits = self.text[self.at : self.at + width]
            self.at += width
            if len(digits) != width:
                digits = ""
        if not re.fullmatch("[0-9a-fA-F]+", digits):
            raise TextFault(f"'\\{letter}' without hexadecimal digits", start)
        code = int(digits, 16)
        if 0xD800 <= code <= 0xDBFF and self.text.startswith("\\u", self.at):
            low = self.text[self.at + 2 : self.at + 6]
            if re.fullmatch("[dD][c-fC-F][0-9a-fA-F]{2}", low):
                self.at += 6
                return 0x10000 + ((code - 0xD800) << 10) + int(low, 16) - 0xDC00
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise TextFault(f"U+{code:X} is no character", start)
        return code

    def bracket(self, start: int) -> CharSet:
        """A class in brackets; the opening one is already passed."""
        is_negative = self.take("^")
        self.is_negated ^= is_negative
        sets: list[CharSet] = []
        named: set[str] = set()
        is_first = True
        while True:
            if self.ended:
                raise TextFault("a class without ']'", start)
            if self.peek == "]" and not (is_first and self.dialect == "plain"):
                self.at += 1
                break
            is_first = False
            named.add(self.text[self.at : self.at + 2])
            sets.append(self._range())
        self.is_negated ^= is_negative
        if named & {r"\d", r"\w", r"\s"} & {name.lower() for name in named if name[1:].isupper()}:
            sets.append(ANY)  # a class and its opposite are everything under any reading
        return complement(union(*sets)) if is_negative else union(*sets)

    def _range(self) -> CharSet:
        """One character, a range or a named class, folded."""
        place = self.at
        first, is_class = self._member()
        if self.ended or self.peek != "-" or self.text.startswith("-]", self.at):
            return first if is_class else self.folded(first)
        if is_class:
            if self.dialect == "schema":
                raise TextFault("a range from a class of characters", place)
            return first
        self.at += 1
        if self.ended:
            raise TextFault("a class without ']'", place)
        last, is_class = self._member()
        if is_class:
            raise TextFault("a range to a class of characters", place)
        if last[0][0] < first[0][0]:
            raise TextFault("a range from a higher to a lower character", place)
        return self.folded(((first[0][0], last[0][0]),))

    def _member(self) -> tuple[CharSet, bool]:
        """One character not yet folded, or a named class; and whether it is such a class."""
        start = self.at
        letter = self.next()
        if letter == "[" and not self.ended and self.peek == ":" and self.dialect == "plain":
            return self._posix(start)
        if letter != "\\":
            return ((ord(letter), ord(letter)),), False
        if self.ended:
            raise TextFault("a backslash at the end", start)
        if self.take("b"):
            return ((8, 8),), False
        if self.peek in "123456789":
            raise TextFault("a digit after a backslash in a class", start)
        named = escaped_class(self)
        return (self.escaped_letter(start), False) if named is None else (named, True)

    def _posix(self, start: int) -> tuple[CharSet, bool]:
        end = self.text.find(":]", self.at)
        if end < 0:
            return ((91, 91),), False
        name = self.text[self.at + 1 : end]
        chars = POSIX.get(name.removeprefix("^"))
        if chars is None:
            raise TextFault(f"unknown class {name!r}", start)
        self.at = end + 2
        return self.opposite(name.startswith("^"), lambda: chars), True
